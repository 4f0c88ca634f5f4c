"use strict";
// Shared by all pages: files of data, elements, the address, copying.
const site = (() => {
  const root = document.body.dataset.root;
  const loaded = new Map();
  const waiting = new Map();

  // Data files are scripts that call this: fetch() of a file fails where a page is opened as a file.
  function give(path, data) {
    loaded.set(path, data);
    const wait = waiting.get(path);
    if (wait) { wait.resolve(data); }
  }
  function load(path) {
    if (loaded.has(path)) { return Promise.resolve(loaded.get(path)); }
    if (!waiting.has(path)) {
      const wait = {};
      wait.promise = new Promise((resolve, reject) => { wait.resolve = resolve; wait.reject = reject; });
      waiting.set(path, wait);
      const script = document.createElement("script");
      script.src = root + path.split("/").map(encodeURIComponent).join("/");
      script.onerror = () => {
        waiting.delete(path);
        wait.reject(new Error(`${path} could not be loaded`));
      };
      document.head.append(script);
    }
    return waiting.get(path).promise;
  }

  // Text is only ever set as text: nothing from a record becomes markup.
  function make(name, properties, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(properties || {})) {
      if (key === "class") { element.className = value; } else if (value !== null) { element.setAttribute(key, value); }
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  function address() { return new URLSearchParams(location.hash.slice(1)); }
  function setAddress(values) {
    const parameters = new URLSearchParams();
    for (const [key, value] of values) { if (value) { parameters.append(key, value); } }
    const text = parameters.toString();
    history.replaceState(null, "", text ? `#${text}` : location.pathname.split("/").pop() + location.search);
  }

  function copy(text, element) {
    if (navigator.clipboard) { return navigator.clipboard.writeText(text); }
    const range = document.createRange();
    range.selectNodeContents(element);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    return document.execCommand("copy") ? Promise.resolve() : Promise.reject(new Error("copy"));
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest(".copy");
    if (!button) { return; }
    const code = button.parentElement.querySelector("code");
    copy(code.textContent, code).then(
      () => { button.textContent = "Copied"; },
      () => { button.textContent = "Select and copy"; },
    );
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });

  // Fill a form from the address, and keep the address to it. What the address asks for and the page
  // does not have is given to `apply` as text, until a filter is changed: all would seem to fit it.
  function bindFilters(form, apply) {
    const wanted = address();
    const fields = [...form.elements].filter((field) => field.name);
    const unknown = [];
    for (const name of new Set(fields.map((field) => field.name))) {
      const mine = fields.filter((field) => field.name === name);
      const values = wanted.getAll(name);
      if (mine[0].type === "checkbox") {
        for (const field of mine) { field.checked = values.includes(field.value); }
        unknown.push(...values.filter((value) => !mine.some((field) => field.value === value)).map((value) => `${name} ${value}`));
      } else if (values.length) {
        mine[0].value = values[0];
        if (mine[0].selectedIndex === -1) {
          mine[0].value = "";
          unknown.push(`${name} ${values[0]}`);
        }
      }
    }
    const changed = () => {
      const values = [...new FormData(form)];
      const open = address().get("open");
      setAddress(open ? [...values, ["open", open]] : values);
      apply(new FormData(form));
    };
    form.addEventListener("input", changed);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
    apply(new FormData(form), unknown.length ? `; the address asks for ${unknown.join(", ")}, which this page does not have` : "");
  }
  // A table for keyboards: one tab stop, arrows move. `steps` returns what of a line takes the focus,
  // and `open` is called for Enter on what is no link.
  function grid(table, lines, steps, open) {
    table.setAttribute("role", "grid");
    let current = null;
    function move(to) {
      if (!to) { return; }
      if (current) { current.tabIndex = -1; }
      current = to;
      to.tabIndex = 0;
      to.focus();
      to.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
    function keepOneTabStop() {
      if (current && current.closest("[hidden]") === null) { return; }
      if (current) { current.tabIndex = -1; }
      const first = lines.find((line) => !line.hidden);
      current = first ? steps(first)[0] : null;
      if (current) { current.tabIndex = 0; }
    }
    table.addEventListener("keydown", (event) => {
      const line = event.target.closest("tr");
      if (!lines.includes(line) || event.altKey || event.metaKey) { return; }
      const shown = lines.filter((one) => !one.hidden);
      const row = shown.indexOf(line);
      const column = steps(line).indexOf(event.target);
      const at = (r, c) => { const s = steps(shown[Math.max(0, Math.min(r, shown.length - 1))]); return s[Math.max(0, Math.min(c, s.length - 1))]; };
      const to = {
        ArrowRight: () => at(row, column + 1), ArrowLeft: () => at(row, column - 1),
        ArrowDown: () => at(row + 1, column), ArrowUp: () => at(row - 1, column),
        PageDown: () => at(row + 12, column), PageUp: () => at(row - 12, column),
        Home: () => at(event.ctrlKey ? 0 : row, 0), End: () => at(event.ctrlKey ? shown.length : row, 1e6),
      }[event.key];
      if (to) { event.preventDefault(); move(to()); }
      if ((event.key === "Enter" || event.key === " ") && event.target.tagName === "TD") { event.preventDefault(); open(event.target); }
    });
    return { move, keepOneTabStop };
  }
  const words = (text) => (text || "").toLowerCase().split(/\s+/).filter(Boolean);
  return { root, give, load, make, address, setAddress, bindFilters, grid, words };
})();
