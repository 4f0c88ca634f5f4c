"use strict";
// The matrix: filters in the address, one tab stop with arrow keys, details of a cell on opening.
(() => {
  const table = document.getElementById("matrix");
  if (!table) { return; }
  const place = table.querySelector("tr[data-case] a");
  const heads = [...table.querySelectorAll("th[data-cell]")];
  const lines = [...table.querySelectorAll("tr[data-case]")];
  const pythons = [...table.querySelectorAll("thead th[scope=colgroup]")];
  const lineCells = new Map(lines.map((line) => [line, [...line.querySelectorAll("td:not(.support)")]]));

  function apply(form, unknown = "") {
    const words = site.words(form.get("text"));
    const statuses = form.getAll("status");
    const shownColumns = heads.map((head) =>
      (!form.get("python") || head.dataset.python === form.get("python")) &&
      (!form.get("torch") || head.dataset.torch === form.get("torch")));
    heads.forEach((head, i) => { head.hidden = !shownColumns[i]; });
    for (const head of pythons) {
      const mine = heads.filter((one) => `Python ${one.dataset.python}` === head.textContent && !one.hidden);
      head.hidden = !mine.length;
      head.colSpan = mine.length || 1;
    }
    table.classList.toggle("with-support", form.get("support") !== null);
    let shown = 0;
    for (const line of lines) {
      const cells = lineCells.get(line);
      cells.forEach((cell, i) => { cell.hidden = !shownColumns[i]; });
      const text = line.dataset.case.toLowerCase();
      line.hidden = !(words.every((word) => text.includes(word)) &&
        (!form.get("variant") || line.dataset.variant === form.get("variant")) &&
        (!statuses.length || cells.some((cell, i) => shownColumns[i] &&
          statuses.some((status) => cell.classList.contains(status === "down" ? "down" : `s-${status}`)))));
      shown += line.hidden ? 0 : 1;
    }
    for (const body of table.tBodies) { body.hidden = !body.querySelector("tr[data-case]:not([hidden])"); }
    document.getElementById("count").textContent = shown === lines.length ? `${shown} cases` : `${shown} of ${lines.length} cases${shown ? "" : ": clear a filter"}`;
    document.getElementById("count").textContent += unknown;
    table.parentElement.hidden = !shown;
    keepOneTabStop();
  }

  // A grid for keyboards: one tab stop, arrows move, Enter opens.
  table.setAttribute("role", "grid");
  const steps = (line) => [line.querySelector("th a"), ...lineCells.get(line).filter((cell) => !cell.hidden)];
  let current = null;
  function move(to) {
    if (!to) { return; }
    if (current) { current.tabIndex = -1; }
    current = to;
    to.tabIndex = 0;
    to.focus();
    to.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  for (const link of table.querySelectorAll("th a")) { link.tabIndex = -1; }
  function keepOneTabStop() {
    if (current && current.closest("[hidden]") === null) { return; }
    if (current) { current.tabIndex = -1; }
    const first = lines.find((line) => !line.hidden);
    current = first ? steps(first)[0] : null;
    if (current) { current.tabIndex = 0; }
  }
  table.addEventListener("keydown", (event) => {
    const here = event.target.closest("td, th a");
    const line = here && here.closest("tr[data-case]");
    if (!line || event.altKey || event.metaKey) { return; }
    const shown = lines.filter((one) => !one.hidden);
    const row = shown.indexOf(line);
    const column = steps(line).indexOf(here);
    const at = (r, c) => { const s = steps(shown[Math.max(0, Math.min(r, shown.length - 1))]); return s[Math.max(0, Math.min(c, s.length - 1))]; };
    const to = {
      ArrowRight: () => at(row, column + 1), ArrowLeft: () => at(row, column - 1),
      ArrowDown: () => at(row + 1, column), ArrowUp: () => at(row - 1, column),
      PageDown: () => at(row + 12, column), PageUp: () => at(row - 12, column),
      Home: () => at(event.ctrlKey ? 0 : row, 0), End: () => at(event.ctrlKey ? shown.length : row, 1e6),
    }[event.key];
    if (to) { event.preventDefault(); move(to()); }
    if ((event.key === "Enter" || event.key === " ") && here.tagName === "TD") { event.preventDefault(); openCell(here); }
  });

  const slugOf = (line) => line.querySelector("th a").getAttribute("href").replace(/^case\//, "data/").replace(/\.html$/, "");
  function openCell(cell) {
    if (cell.classList.contains("none")) { return; }
    const line = cell.closest("tr");
    const head = heads[lineCells.get(line).indexOf(cell)];
    details.open(`${slugOf(line)}/${head.dataset.cell}.js`, cell);
  }
  table.addEventListener("click", (event) => {
    const cell = event.target.closest("td:not(.support)");
    if (!cell) { return; }
    move(cell);
    openCell(cell);
  });
  const cellOf = (path) => {
    const line = lines.find((one) => path.startsWith(`${slugOf(one)}/`));
    const column = heads.findIndex((head) => path.endsWith(`/${head.dataset.cell}.js`));
    return line && column >= 0 ? lineCells.get(line)[column] : null;
  };
  for (const cells of lineCells.values()) { for (const cell of cells) { cell.tabIndex = -1; } }
  site.bindFilters(document.getElementById("filters"), apply);
  if (place) { details.openFromAddress(cellOf); }
})();
