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
    grid.keepOneTabStop();
  }

  const steps = (line) => [line.querySelector("th a"), ...lineCells.get(line).filter((cell) => !cell.hidden)];
  const grid = site.grid(table, lines, steps, openCell);
  for (const link of table.querySelectorAll("th a")) { link.tabIndex = -1; }

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
    grid.move(cell);
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
