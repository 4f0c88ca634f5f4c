"use strict";
// The table of libraries: filters in the address, one tab stop with arrow keys.
(() => {
  const table = document.getElementById("libraries");
  if (!table) { return; }
  const form = document.getElementById("filters");
  const lines = [...table.querySelectorAll("tr[data-name]")].map((row) => ({
    row, name: row.dataset.name.toLowerCase(), own: row.parentElement.className === "own",
    cells: [...row.querySelectorAll("td")].map((cell) => ({
      cell, verdict: cell.className.slice(2), signatures: (cell.dataset.s || "").split(" "), link: cell.firstElementChild,
    })),
  }));
  const heads = [...table.tHead.querySelectorAll("th:not(.case)")];
  const releases = heads.map((head) => head.textContent);
  const rows = lines.map((line) => line.row);
  const byRow = new Map(lines.map((line) => [line.row, line]));
  const steps = (row) => [row.querySelector("th a"), ...byRow.get(row).cells.map(({ link }) => link).filter((link) => link && !link.parentElement.hidden)];
  const grid = site.grid(table, rows, steps);
  for (const link of table.tBodies[0].parentElement.querySelectorAll("tbody a")) { link.tabIndex = -1; }
  let column = "";

  // Only what differs is touched: a column is 60 cells, and each of them costs a new layout.
  function showColumn(wanted) {
    if (wanted === column) { return; }
    column = wanted;
    releases.forEach((release, i) => {
      const hidden = wanted !== "" && release !== wanted;
      heads[i].hidden = hidden;
      for (const line of lines) { line.cells[i].cell.hidden = hidden; }
    });
  }
  site.bindFilters(form, (wanted, unknown = "") => {
    const words = site.words(wanted.get("text"));
    const verdicts = wanted.getAll("verdict");
    const select = form.elements.signature;
    const signature = select && select.selectedIndex > 0 ? String(select.selectedIndex) : "";
    const torch = wanted.get("torch") || "";
    showColumn(torch);
    let shown = 0;
    for (const line of lines) {
      const fits = ({ verdict, signatures }, i) => (!torch || releases[i] === torch) &&
        (!verdicts.length || verdicts.includes(verdict)) && (!signature || signatures.includes(signature));
      line.row.hidden = !(words.every((word) => line.name.includes(word)) &&
        ((!verdicts.length && !signature) || line.cells.some(fits)));
      shown += line.row.hidden || line.own ? 0 : 1;
    }
    const all = lines.filter((line) => !line.own).length;
    document.getElementById("count").textContent =
      `${shown === all ? all : `${shown} of ${all}`} libraries${shown ? "" : ": clear a filter"}${unknown}`;
    table.parentElement.hidden = rows.every((row) => row.hidden);
    grid.keepOneTabStop();
  });
})();
