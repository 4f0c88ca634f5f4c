"use strict";
// Compare: two sides, a file each; ratios with what runs of the same code differ by.
(() => {
  const block = document.getElementById("choices");
  if (!block) { return; }
  const { make } = site;
  const { places, sessions } = JSON.parse(block.textContent);
  const form = document.getElementById("pick");
  const result = document.getElementById("result");
  const NEWEST = "newest";
  // In this order they are listed.
  const KINDS = ["fails", "degraded", "slower", "eager slower", "missing", "unavailable", "incomparable", "new", "fixed", "faster", "unchanged"];

  function fill(select, values, wanted) {
    const kept = wanted !== undefined ? wanted : select.value;
    select.replaceChildren(...values.map(([value, text]) => make("option", { value }, text)));
    if (values.some(([value]) => value === kept)) { select.value = kept; }
  }
  const unique = (values) => [...new Set(values)];
  // The commits of a cell: first and last of each row of successive ones.
  function commitsOf(place, ranges) {
    const found = [];
    for (let i = 0; i < ranges.length; i += 2) { found.push(...place.commits.slice(ranges[i], ranges[i + 1] + 1)); }
    return found.reverse();
  }
  function fillSide(side, wanted) {
    const field = (name) => form.elements[`${side}-${name}`];
    fill(field("place"), places.map((one) => [one.slug, one.name]), wanted.place);
    const place = places.find((one) => one.slug === field("place").value);
    fill(field("python"), unique(place.cells.map((cell) => cell[0])).map((one) => [one, one]), wanted.python);
    const here = place.cells.filter((cell) => cell[0] === field("python").value);
    fill(field("torch"), here.map((cell) => [cell[1], cell[1]]), wanted.torch);
    const cell = here.find((one) => one[1] === field("torch").value);
    fill(field("commit"), [[NEWEST, "newest of each case"], ...commitsOf(place, cell[3]).map((one) => [one, one])], wanted.commit);
    return { place: place.slug, name: place.name, python: cell[0], torch: cell[1], cell: cell[2], commit: field("commit").value };
  }

  const read = (data) => new Map(Object.entries(data.cases).map(([name, entries]) =>
    [name, entries.map((entry) => Object.fromEntries(data.fields.map((field, i) => [field, entry[i]])))]));

  // The pair of records of a case: of the same sources, if there is one.
  function pair(before, after, elsewhere) {
    if (elsewhere) {
      for (const b of after) { for (const a of before) { if (a.sources === b.sources) { return [a, b]; } } }
    }
    return [before[0], after[0]];
  }
  // At both sides the same: the cell, and the Python of one machine.
  const apart = (a, b) => ({ elsewhere: a.cell !== b.cell || a.place !== b.place, sameCell: a.cell === b.cell, samePython: a.python === b.python && a.place === b.place });
  function why(a, b, { elsewhere, sameCell, samePython }) {
    const found = [];
    if (a.same !== b.same) { found.push(`${a.same} before; ${b.same} after`); }
    if (sameCell && a.lock !== b.lock) { found.push(`lock ${a.lock} before, ${b.lock} after`); }
    if (samePython && a.build && b.build && a.build !== b.build) { found.push(`Python built with ${a.build} before, with ${b.build} after`); }
    if (elsewhere && a.sources !== b.sources) { found.push(`other sources: commit ${a.commit} before, ${b.commit} after`); }
    return found.join("; ");
  }
  const reach = (a, b, field) => Math.hypot(a[field], b[field]);
  // Seconds are compared at equal speed of the machine, if both sides measured it (metrics.difference).
  const SECONDS = new Set(["eager", "compiled", "cold"]);
  const atEqualSpeed = (a, b) => a.speed !== null && b.speed !== null && a.yardstick === b.yardstick;
  function ratio(a, b, field) {
    if (!(a[field] > 0 && b[field] > 0)) { return null; }
    return b[field] / a[field] / (SECONDS.has(field) && atEqualSpeed(a, b) ? b.speed / a.speed : 1);
  }
  function judge(a, b, where) {
    const fails = [a, b].map((one) => one.speedup === null);
    if (fails[0] && fails[1]) { return ["unchanged", a.status === b.status ? a.status : `${a.status} before; ${b.status} after`]; }
    if (fails[0] || fails[1]) {
      const [failed, ran, never] = fails[0] ? [a, "fixed", "new"] : [b, "fails", "unavailable"];
      return [failed.status === "failed: unavailable" ? never : ran, `${a.status} before; ${b.status} after`];
    }
    const differing = why(a, b, where);
    if (differing) { return ["incomparable", differing]; }
    for (const [field, what] of [["breaks", "graph breaks"], ["recompiles", "recompiles"]]) {
      if (a[field] !== null && b[field] > a[field]) { return ["degraded", `${a[field]} ${what} before, ${b[field]} after`]; }
    }
    const moved = (field, limit) => {
      const found = Math.log(ratio(a, b, field) || 1);
      return Math.abs(found) > reach(a, b, limit) ? Math.sign(found) : 0;
    };
    const speedup = moved("speedup", "reach");
    const [eager, compiled] = ["eager", "compiled"].map((field) => moved(field, `${atEqualSpeed(a, b) ? "equal" : "reach"}_${field}`));
    // The rule of ivhl.tracker.changes.kinds.CaseChange.kind.
    const kind = compiled > 0 || (speedup < 0 && eager >= 0) ? "slower"
      : compiled < 0 || (speedup > 0 && eager <= 0) ? "faster"
      : eager > 0 ? "eager slower" : "unchanged";
    const sides = [["eager", eager], ["compiled", compiled]].filter(([, way]) => way)
      .map(([field, way]) => `${field} ${way > 0 ? "slower" : "faster"}: ${times(ratio(a, b, field))}`);
    const how = sides.length && atEqualSpeed(a, b) ? " at equal speed of the machine" : "";
    return [kind, sides.join(", ") + how || (kind === "unchanged" ? "" : "which side moved cannot be told from the seconds")];
  }
  const times = (value) => `${value >= 0.01 && value < 1e4 ? value.toFixed(2) : value.toExponential(1)}x`;
  const shown = (value) => (value === null ? "–" : times(value));

  // The mean of a ratio over cases. No number of cases makes smaller what another session moves all of them by.
  function mean(rows, field) {
    const values = rows.map((row) => ratio(row.one, row.other, field));
    const logs = values.filter((value) => value > 0).map(Math.log);
    if (!logs.length) { return "–"; }
    const middle = logs.reduce((a, b) => a + b, 0) / logs.length;
    if (logs.length < 2) { return times(Math.exp(middle)); }
    const error = Math.sqrt(logs.reduce((sum, one) => sum + (one - middle) ** 2, 0) / (logs.length - 1) / logs.length);
    const free = logs.length - 1; // Student's t, as ivhl.tracker.store.metrics.student
    const scaled = 1.959964 * (8 * free + 3) / (8 * free + 1);
    const reached = Math.hypot(Math.sqrt(free * Math.expm1(scaled * scaled / free)) * error, sessions[field]);
    return `${times(Math.exp(middle))} [${times(Math.exp(middle - reached))}, ${times(Math.exp(middle + reached))}]`;
  }

  function means(rows) {
    const equal = rows.filter((row) => atEqualSpeed(row.one, row.other)).length;
    const how = equal === rows.length ? " at equal speed of the machine" : equal ? `, at equal speed of the machine for ${equal} of the cases` : ", since no speed of the machine was measured";
    return `speedup ${mean(rows, "speedup")} of what it was; seconds${how}: eager ${mean(rows, "eager")}, compiled ${mean(rows, "compiled")}, cold compile ${mean(rows, "cold")}.`;
  }

  function put(...children) {
    result.replaceChildren(...children);
    result.removeAttribute("aria-busy");
  }

  let turn = 0;
  async function show() {
    turn += 1;
    const mine = turn;
    const wanted = (side) => Object.fromEntries(["place", "python", "torch", "commit"].map((name) => [name, form.elements[`${side}-${name}`].value]));
    const a = fillSide("a", wanted("a"));
    const b = fillSide("b", wanted("b"));
    site.setAddress([...new FormData(form)]);
    const path = (side) => `data/side/${side.place}/${side.cell}/${side.commit}.js`;
    let sides;
    // What stands below is of the former choice until the files of this one are there.
    result.setAttribute("aria-busy", "true");
    try {
      sides = (await Promise.all([a, b].map((side) => site.load(path(side))))).map(read);
    } catch (error) {
      if (mine === turn) { put(make("p", { class: "empty" }, String(error.message))); }
      return;
    }
    if (mine !== turn) { return; }
    const where = apart(a, b);
    const rows = [];
    for (const name of new Set([...sides[0].keys(), ...sides[1].keys()])) {
      const [before, after] = sides.map((side) => side.get(name));
      if (!before || !after) {
        const one = (before || after)[0];
        rows.push({ name, kind: before ? "missing" : "new", text: one.status, before: before ? one.speedup : null, after: after ? one.speedup : null, effect: null });
        continue;
      }
      const [one, other] = pair(before, after, where.elsewhere);
      const [kind, text] = judge(one, other, where);
      const effect = kind === "incomparable" ? null : ratio(one, other, "speedup");
      rows.push({ name, kind, text, before: one.speedup, after: other.speedup, effect, one, other, reach: effect === null ? null : Math.exp(reach(one, other, "reach")) });
    }
    rows.sort((x, y) => KINDS.indexOf(x.kind) - KINDS.indexOf(y.kind) || Math.abs(Math.log(y.effect || 1)) - Math.abs(Math.log(x.effect || 1)) || x.name.localeCompare(y.name));
    draw(a, b, rows);
  }

  // The page of a case; one whose file name is not its name (tracker.views.source.slug) gets no link.
  function link(row, a, b) {
    const place = row.kind === "missing" ? a.place : b.place;
    if (!/^[a-z0-9_.-]+(\/[a-z0-9_.-]+){2}$/.test(row.name) || row.name.length > 120) { return row.name; }
    return make("a", { href: `${site.root}case/${place}/${row.name.replaceAll("/", "+")}.html` }, row.name);
  }

  function draw(a, b, rows) {
    const both = rows.filter((row) => row.effect !== null);
    const counts = KINDS.map((kind) => [kind, rows.filter((row) => row.kind === kind).length]).filter(([, n]) => n);
    const listed = form.elements.all.checked ? rows : rows.filter((row) => row.kind !== "unchanged");
    const says = (side) => `Python ${side.python}, PyTorch ${side.torch}, ${side.commit === NEWEST ? "newest" : side.commit}, ${side.name}`;
    const worse = new Set(["fails", "degraded", "slower", "eager slower", "missing"]);
    const better = new Set(["fixed", "faster"]);
    const table = make("table", { class: "plain" },
      make("thead", {}, make("tr", {}, ...["case", "what", "before", "after", "after / before", "same code up to", "why"].map((head) => make("th", { scope: "col" }, head)))),
      make("tbody", {}, ...listed.map((row) => make("tr", {},
        make("th", { scope: "row" }, link(row, a, b)),
        make("td", {}, make("span", { class: `chip ${worse.has(row.kind) ? "verdict-worse" : better.has(row.kind) ? "verdict-better" : "s-unavailable"}` }, row.kind)),
        make("td", {}, shown(row.before)), make("td", {}, shown(row.after)), make("td", {}, shown(row.effect)),
        make("td", {}, row.reach ? times(row.reach) : "–"), make("td", { class: "why" }, row.text)))));
    put(
      make("p", {}, make("b", {}, says(a)), " → ", make("b", {}, says(b))),
      make("p", { id: "summary" }, `${rows.length} cases: ${counts.map(([kind, n]) => `${n} ${kind}`).join(", ")}. `,
        both.length ? `Over the ${both.length === 1 ? "one" : both.length} measured on both sides in the same way: ${means(both)}` : "None was measured on both sides in the same way."),
      listed.length ? make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Cases" }, table) : make("p", { class: "quiet" }, "No case differs."));
  }

  const address = site.address();
  const start = (side) => Object.fromEntries(["place", "python", "torch", "commit"].map((name) => [name, address.get(`${side}-${name}`) || undefined]));
  fillSide("a", start("a"));
  fillSide("b", start("b"));
  if (!address.get("a-torch") && !address.get("b-torch")) {
    // At first: the two newest releases of the first Python.
    const releases = [...form.elements["b-torch"].options].map((one) => one.value);
    form.elements["b-torch"].value = releases[releases.length - 1];
    form.elements["a-torch"].value = releases[Math.max(0, releases.length - 2)];
  }
  form.elements.all.checked = address.get("all") !== null;
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  show();
})();
