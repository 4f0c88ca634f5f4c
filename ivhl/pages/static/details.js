"use strict";
// The dialog with everything about one case in one cell. Its file is loaded when it is opened.
const details = (() => {
  const { make } = site;
  const dialog = document.getElementById("details");
  const veil = make("div", { class: "veil" });
  let back = null;

  const list = (title, facts) => make("section", {}, make("h3", {}, title),
    make("dl", { class: "facts" }, ...facts.map(([label, value]) => make("div", {}, make("dt", {}, label), make("dd", {}, make("bdi", {}, value))))));
  const counted = (title, found) => (found.length ? make("section", {}, make("h3", {}, title),
    make("ul", { class: "counted" }, ...found.map(([count, text]) => make("li", {}, `${count}× `, make("code", { dir: "auto" }, text))))) : null);
  const table = (head, rows) => make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": head.join(", ") },
    make("table", { class: "plain" },
      make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((text, i) => make(i ? "td" : "th", i ? {} : { scope: "row" }, text)))))));

  // The course over commits, from its parts, oldest first: they have a list of points, charts a list
  // for each curve.
  function course(parts) {
    const { fields } = parts[0].history;
    const points = parts.flatMap((part) => part.points);
    const { commit, at, same, result, ...curves } = Object.fromEntries(fields.map((name, i) => [name, points.map((point) => point[i])]));
    const seen = Object.entries(curves).filter(([, values]) => values.some((value) => value !== null));
    const marks = [];
    let before = 0;
    for (const part of parts) {
      marks.push(...part.history.marks.map((mark) => mark + before));
      before += part.points.length;
    }
    return {
      x: commit, breaks: parts.flatMap((part) => part.history.breaks),
      lines: [{ name: "speedup", marks: marks.filter((mark) => mark > 0), ...Object.fromEntries(seen) }],
    };
  }
  // The newest runs in a table, the newest first.
  function newest(data, most) {
    const at = Object.fromEntries(data.history.fields.map((name, i) => [name, i]));
    return data.points.slice(-most).reverse().map((point) => [point[at.commit], point[at.at].slice(0, 10), point[at.result], point[at.same] ? `measured at ${point[at.same]}` : ""]);
  }

  function fill(data) {
    const failure = data.failure;
    const parts = [];
    if (failure) {
      parts.push(list("Failure", [["failure class", failure.class], ["phase", failure.phase], ["exception", failure.exception], ["where", failure.where]].filter(([, value]) => value)));
    }
    if (data.message) {
      parts.push(make("section", {}, make("h3", {}, failure ? "Message" : "Why"), make("pre", { class: "said", dir: "auto", tabindex: "0" }, data.message)));
    }
    if (data.expected) {
      const { title, reason, link } = data.expected;
      parts.push(make("section", {}, make("h3", {}, title),
        make("p", {}, reason, ...(link ? [" ", make("a", { href: link, rel: "noreferrer" }, link)] : []))));
    }
    if (data.upstream.length) {
      parts.push(make("section", {}, make("h3", {}, "Known causes"),
        make("ul", {}, ...data.upstream.map(([url, title]) => make("li", {}, url ? make("a", { href: url, rel: "noreferrer" }, title) : title)))));
    }
    if (failure && failure.output) {
      parts.push(make("details", {}, make("summary", {}, "End of the output"), make("pre", { dir: "auto", tabindex: "0" }, failure.output)));
    }
    if (data.command) {
      parts.push(make("section", {}, make("h3", {}, "Repeat this measurement"),
        make("div", { class: "command" }, make("code", {}, data.command), make("button", { type: "button", class: "copy" }, "Copy"))));
    }
    parts.push(make("div", { class: "columns" }, ...data.groups.map((group) => list(group.title, group.facts))));
    if (data.errors.length) {
      parts.push(make("section", {}, make("h3", {}, "Errors against the float64 reference (RMSE)"),
        table(["output", "eager", "variant", "allowed", "verdict"], data.errors.map((e) => [e.output, e.eager, e.compiled, e.limit, e.verdict]))));
    }
    for (const [title, found] of Object.entries(data.counted)) { parts.push(counted(title, found)); }
    if (data.points.length > 1) {
      parts.push(make("section", {}, make("h3", {}, "At other commits"), table(["commit", "recorded", "result", "note"], newest(data, 12))));
    }
    parts.push(make("section", {}, make("h3", {}, "Environment"), make("p", {}, data.lock ? `Lock ${data.lock}` : "Existing environment, without a lock.")));
    return [
      make("div", { class: `head edge-${data.status}` },
        make("form", { method: "dialog" }, make("button", { class: "close", "aria-label": "Close" }, "×")),
        make("h2", { id: "details-title" }, data.title), make("p", { class: "quiet" }, data.place),
        make("p", {}, make("span", { class: `chip s-${data.status}` }, data.word), " ", make("b", { class: "number" }, data.text), " ", make("span", { class: "quiet" }, data.meaning)),
        make("p", {}, ...data.links.flatMap(([href, text], i) => [i ? " · " : "", make("a", { href: site.root + href }, text)]))),
      make("div", { class: "body" }, ...parts.filter(Boolean)),
    ];
  }

  async function open(path, from) {
    back = from || null;
    try {
      dialog.replaceChildren(...fill(await site.load(path)));
    } catch (error) {
      dialog.replaceChildren(make("div", { class: "body" },
        make("form", { method: "dialog" }, make("button", { class: "close", "aria-label": "Close" }, "×")),
        make("h2", { id: "details-title" }, "The details cannot be shown"), make("p", {}, String(error.message))));
    }
    if (!dialog.open) {
      document.body.append(veil);
      dialog.show();
    }
    dialog.scrollTop = 0;
    const values = [...site.address()].filter(([key]) => key !== "open");
    site.setAddress([...values, ["open", path]]);
  }
  dialog.addEventListener("close", () => {
    veil.remove();
    site.setAddress([...site.address()].filter(([key]) => key !== "open"));
    if (back) { back.focus(); }
  });
  // What showModal() would do, which also makes every element behind the dialog inert: of 70 ms of
  // opening a cell in a matrix of 2,000 cells that took 50. Here the veil takes the clicks, and focus
  // that leaves the dialog is brought back.
  dialog.setAttribute("aria-modal", "true");
  veil.addEventListener("click", () => dialog.close());
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && dialog.open) { dialog.close(); } });
  document.addEventListener("focusin", (event) => {
    if (dialog.open && !dialog.contains(event.target)) { dialog.querySelector(".close").focus(); }
  });
  function openFromAddress(from) {
    const path = site.address().get("open");
    // Only a file of this site: the address can come from anywhere.
    if (path && /^data\/[^/\\]+\/[^/\\]+\/[^/\\]+\.js$/.test(path) && !path.includes("..")) { open(path, from && from(path)); }
  }
  return { open, openFromAddress, course };
})();
