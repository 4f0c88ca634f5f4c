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
  site.bindFilters(form, (wanted) => {
    const words = site.words(wanted.get("text"));
    const since = wanted.get("since") ? Date.now() - wanted.get("since") * 86400e3 : 0;
    let shown = 0;
    for (const one of all) {
      const text = one.textContent.toLowerCase();
      one.hidden = !(Date.parse(one.dataset.at) >= since && (!wanted.get("along") || one.dataset.along === wanted.get("along")) &&
        (!wanted.get("worse") || one.dataset.worse === wanted.get("worse")) && words.every((word) => text.includes(word)));
      shown += one.hidden ? 0 : 1;
    }
    document.getElementById("count").textContent = `${shown} of ${all.length} incidents`;
  });
})();
