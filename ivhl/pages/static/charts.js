"use strict";
// Small charts with uPlot: gaps where nothing was measured, breaks where points cannot be compared.
const charts = (() => {
  const { make } = site;
  const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3], [12, 4], [1, 2]];
  const KINDS = [
    ["speedup", "Speedup over eager", "x"],
    ["compiled", "Time of a call", "s", "eager"],
    ["cold", "Compile time, cold: CPU seconds", "s"],
    ["warm", "Compile time, warm: CPU seconds", "s"],
    ["memory", "Peak memory of a call", "B", "memory_eager"],
    ["error", "Largest error (RMSE) against float64", "", "error_eager"],
    ["breaks", "Graph breaks", "n"],
    ["recompiles", "Recompiles", "n"],
  ];
  const MOST_NUMBERS = 3000; // elements of a table
  const colour = (i) => getComputedStyle(document.documentElement).getPropertyValue(`--c${i % 6}`).trim();
  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function say(value, unit) {
    if (value === null || value === undefined) { return "–"; }
    const prefixes = { s: [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]], B: [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]] }[unit];
    if (prefixes) {
      const [factor, name] = prefixes.find(([one]) => value >= one) || prefixes[prefixes.length - 1];
      return `${+(value / factor).toPrecision(3)} ${name}`;
    }
    if (value > 0 && (value < 1e-3 || value >= 1e5)) { return `${value.toExponential(1)}${unit === "x" ? "x" : ""}`; }
    return `${+value.toPrecision(3)}${unit === "x" ? "x" : ""}`;
  }

  // Values sit at even positions. An odd one is a gap (null) before a break and beside a point that is
  // missing, and nothing (undefined) elsewhere, so that uPlot draws a line only between neighbours
  // that were both measured and can be compared.
  function spread(values, marks) {
    const out = new Array(2 * values.length - 1);
    values.forEach((value, i) => {
      out[2 * i] = value;
      if (i > 0 && (value === null || values[i - 1] === null || marks.includes(i))) { out[2 * i - 1] = null; }
    });
    return out;
  }

  function draw(parent, title, unit, x, curves) {
    const present = curves.filter((curve) => curve.values.some((value) => value !== null));
    if (!present.length) { return; }
    const flat = present.flatMap((curve) => [...curve.values, ...(curve.low || []), ...(curve.high || [])]).filter((value) => value !== null);
    const counts = unit === "n";
    if (counts && flat.every((value) => value === 0)) {
      parent.append(make("figure", { class: "chart none" }, make("figcaption", {}, title), make("p", { class: "quiet" }, "none at any point")));
      return;
    }
    const log = !counts && flat.every((value) => value > 0);
    const marks = new Set(present.flatMap((curve) => curve.marks || []));
    const legend = make("ul", { class: "legend" }, ...(present.length > 1 ? present.map((curve) => {
      const line = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      line.setAttribute("viewBox", "0 0 28 6");
      line.setAttribute("width", "28");
      line.setAttribute("height", "6");
      line.setAttribute("aria-hidden", "true");
      const stroke = document.createElementNS("http://www.w3.org/2000/svg", "line");
      for (const [key, value] of Object.entries({ x1: 0, x2: 28, y1: 3, y2: 3, stroke: colour(curve.number), "stroke-width": 2, "stroke-dasharray": DASHES[curve.dash % 6].join(" ") })) { stroke.setAttribute(key, value); }
      line.append(stroke);
      return make("li", {}, line, curve.name);
    }) : []));
    const place = make("div", { class: "plot" });
    const figure = make("figure", { class: "chart" }, make("figcaption", {}, title), legend, place);
    parent.append(figure);
    const shown = make("p", { class: "reading", "aria-hidden": "true" }, "\u00a0");
    const low = Math.min(...flat);
    const high = Math.max(...flat);
    const pad = log ? Math.max((high / low) ** 0.1, 1.08) : 1;
    const width = place.clientWidth || 360;
    const options = {
      width, height: 170, legend: { show: false }, cursor: { drag: { x: false, y: false }, points: { size: 7 } },
      scales: {
        x: { time: false, range: () => [-0.6, 2 * x.length - 1.4] },
        y: log ? { distr: 3, range: () => [Math.max(low / pad, 1e-300), Math.min(high * pad, 1e300)] } : { range: () => [0, high * 1.15 || 1] },
      },
      axes: [
        { stroke: ink("--quiet"), grid: { show: false }, ticks: { show: false }, size: 28, font: "11px system-ui",
          splits: () => { const step = Math.ceil(x.length / Math.max(2, Math.floor(width / 62))); return x.map((_, i) => 2 * i).filter((_, i) => (x.length - 1 - i) % step === 0); },
          values: (_, at) => at.map((one) => x[one / 2]) },
        { stroke: ink("--quiet"), grid: { stroke: ink("--line"), width: 1 }, ticks: { show: false }, size: 58, font: "11px system-ui",
          splits: log ? () => ticks(low / pad, high * pad, unit) : undefined, filter: (_, at) => at,
          values: (_, at) => at.map((value) => say(value, unit)) },
      ],
      series: [{}, ...present.map((curve) => ({ stroke: colour(curve.number), width: 2, dash: DASHES[curve.dash % 6], spanGaps: false, paths: curve.loose ? () => null : undefined, points: { show: true, size: 6, fill: colour(curve.number) } }))],
      hooks: {
        drawAxes: [(u) => {
          const c = u.ctx;
          c.save();
          c.strokeStyle = ink("--quiet");
          c.lineWidth = devicePixelRatio;
          c.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
          for (const mark of marks) { rule(u, 2 * mark - 1); }
          c.setLineDash([]);
          if (unit === "x" && low / pad < 1 && high * pad > 1) {
            const y = u.valToPos(1, "y", true);
            c.beginPath(); c.moveTo(u.bbox.left, y); c.lineTo(u.bbox.left + u.bbox.width, y); c.stroke();
          }
          c.restore();
        }],
        drawSeries: [(u, number) => {
          const curve = present[number - 1];
          if (!curve || !curve.low) { return; }
          const c = u.ctx;
          c.save();
          c.strokeStyle = colour(curve.number);
          c.lineWidth = 1.5 * devicePixelRatio;
          curve.low.forEach((value, i) => {
            if (value === null || curve.high[i] === null) { return; }
            const at = u.valToPos(2 * i, "x", true);
            c.beginPath(); c.moveTo(at, u.valToPos(value, "y", true)); c.lineTo(at, u.valToPos(curve.high[i], "y", true)); c.stroke();
          });
          c.restore();
        }],
        setCursor: [(u) => {
          const i = u.cursor.idx === null || u.cursor.idx === undefined ? null : Math.round(u.cursor.idx / 2);
          shown.textContent = i === null ? "\u00a0" : `${x[i]}: ${present.map((curve) => `${curve.name ? `${curve.name} ` : ""}${say(curve.values[i], unit)}`).join(", ")}`;
        }],
      },
    };
    function rule(u, at) {
      const px = u.valToPos(at, "x", true);
      u.ctx.beginPath(); u.ctx.moveTo(px, u.bbox.top); u.ctx.lineTo(px, u.bbox.top + u.bbox.height); u.ctx.stroke();
    }
    const data = [Array.from({ length: 2 * x.length - 1 }, (_, i) => i), ...present.map((curve) => spread(curve.values, curve.marks || []))];
    const plot = new uPlot(options, data, place);
    const summary = present.map((curve) => { const v = curve.values.filter((one) => one !== null); return `${curve.name || title}: ${say(v[0], unit)} to ${say(v[v.length - 1], unit)}`; }).join("; ");
    const canvas = plot.root.querySelector("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${title}, ${x[0]} to ${x[x.length - 1]}. ${summary}. The table below has the numbers.`);
    figure.append(shown);
  }

  function ticks(low, high, unit) {
    if (unit === "B") {
      const powers = [];
      const step = Math.max(1, Math.ceil(Math.log2(high / low) / 5));
      for (let power = Math.ceil(Math.log2(low)); power <= Math.log2(high); power += step) { powers.push(2 ** power); }
      if (powers.length > 1) { return powers; }
    }
    const span = Math.log10(high / low);
    const steps = span > 30 ? [1] : span > 1.6 ? [1] : span > 0.8 ? [1, 2, 5] : span > 0.35 ? [1, 1.5, 2, 3, 4, 5, 6, 8] : null;
    if (!steps) { return [0.2, 0.5, 0.8].map((share) => +(low * (high / low) ** share).toPrecision(2)); }
    const every = Math.max(1, Math.ceil(span / 5));
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      if (power % every === 0) { for (const step of steps) { found.push(step * 10 ** power); } }
    }
    return found.filter((value) => value >= low && value <= high);
  }

  function small(parent, x, lines, along) {
    const before = parent.children.length;
    for (const [key, title, unit, partner] of KINDS) {
      const curves = [];
      lines.forEach((line, i) => {
        if (line[key]) {
          const name = lines.length > 1 ? line.name : "";
          curves.push({ name: partner ? `${name} compiled`.trim() : name, number: i, dash: lines.length > 1 ? i : 0, values: line[key], marks: line.marks, low: key === "speedup" ? line.low : null, high: key === "speedup" ? line.high : null });
          if (partner && line[partner]) { curves.push({ name: `${name} eager`.trim(), number: i + 3, dash: i + 1, values: line[partner], marks: line.marks }); }
        }
      });
      draw(parent, partner ? `${title}: compiled and eager` : title, unit, x, curves);
    }
    if (parent.children.length > before) { parent.after(numbers(x, lines, along)); }
  }

  function numbers(x, lines, along) {
    const columns = lines.flatMap((line) => KINDS.flatMap(([key, title, unit, partner]) => [key, partner].filter((one) => one && line[one]).map((one) => ({ head: [lines.length > 1 ? line.name : "", title, one === partner ? "eager" : ""].filter(Boolean).join(", "), values: line[one], unit }))));
    const body = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Numbers over ${along}` });
    const more = make("details", { class: "numbers" }, make("summary", {}, "As a table"), body);
    more.addEventListener("toggle", () => {
      if (!more.open || body.children.length) { return; }
      const first = Math.max(0, x.length - Math.ceil(MOST_NUMBERS / (columns.length + 2)));
      body.append(make("table", { class: "plain" },
        make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "at"), ...columns.map((column) => make("th", { scope: "col" }, column.head)))),
        make("tbody", {}, ...x.slice(first).map((name, i) => make("tr", {}, make("th", { scope: "row" }, name), ...columns.map((column) => make("td", {}, say(column.values[first + i], column.unit))))))));
      if (first) { more.append(make("p", { class: "quiet" }, `The newest ${x.length - first} of ${x.length}.`)); }
    });
    return more;
  }

  // Ratios of each round: A/A shows what is noise, A/B what is compiled.
  function samples(parent, data) {
    const { eager, again, compiled } = data;
    if (!eager || !compiled) { return; }
    const x = eager.map((_, i) => `${i + 1}`);
    const ratio = (other) => eager.map((value, i) => (other && other[i] > 0 ? value / other[i] : null));
    const curves = (values, name, number) => [{ name, number, dash: 0, values, loose: true }];
    draw(parent, "A/A: eager over eager again, each round", "x", x, curves(ratio(again), "", 1));
    draw(parent, "A/B: eager over compiled, each round", "x", x, curves(ratio(compiled), "", 0));
    draw(parent, "Raw samples: seconds per call, each round", "s", x, [
      ...curves(eager, "eager", 3), ...(again ? curves(again, "eager again", 1) : []), ...curves(compiled, "compiled", 0)]);
  }
  return { small, samples, say };
})();
