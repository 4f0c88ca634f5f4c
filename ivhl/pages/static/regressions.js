"use strict";
// Regressions: filters in the address; an incident that the address names is opened.
(() => {
  const form = document.getElementById("filters");
  if (!form) { return; }
  const all = [...document.querySelectorAll("[data-along]")];
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target && target.classList.contains("incident")) {
    target.querySelector("details").open = true;
    target.scrollIntoView();
  }
  site.bindFilters(form, (wanted, unknown = "") => {
    const words = site.words(wanted.get("text"));
    const since = wanted.get("since") ? Date.now() - wanted.get("since") * 86400e3 : 0;
    let shown = 0;
    let newest = "";
    for (const one of all) {
      const text = one.textContent.toLowerCase();
      const fits = (!wanted.get("along") || one.dataset.along === wanted.get("along")) &&
        (!wanted.get("worse") || one.dataset.worse === wanted.get("worse")) && words.every((word) => text.includes(word));
      one.hidden = !fits || Date.parse(one.dataset.at) < since;
      shown += one.hidden ? 0 : 1;
      newest = fits && !newest ? one.dataset.at : newest; // the newest is the first
    }
    const hint = newest ? `the newest that fits is of ${newest.slice(0, 10)}` : "clear a filter";
    document.getElementById("count").textContent = `${shown} of ${all.length} incidents${shown ? "" : `: ${hint}`}${unknown}`;
  });
})();
