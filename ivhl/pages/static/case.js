"use strict";
// The page of a case: its course over releases at once, over commits and in samples on demand.
(() => {
  const { make } = site;
  const curves = JSON.parse(document.getElementById("curves").textContent);
  const over = document.getElementById("over-releases");
  if (over) { charts.small(over, curves.x, curves.lines, "releases"); }
  for (const button of document.querySelectorAll("[data-details]")) {
    button.addEventListener("click", () => details.open(button.dataset.details, button));
  }
  details.openFromAddress((path) => document.querySelector(`[data-details="${CSS.escape(path)}"]`));
  const choice = document.getElementById("cell");
  if (!choice) { return; }
  const course = document.getElementById("course");
  const wanted = site.address().get("cell");
  if (wanted && [...choice.options].some((one) => one.value === wanted)) { choice.value = wanted; }
  async function show() {
    const path = choice.value;
    const data = await site.load(path);
    if (path !== choice.value) { return; }
    course.replaceChildren();
    const history = details.course(data);
    if (history.x.length > 1) {
      course.append(make("h3", {}, "Over commits"));
      const place = make("div", { class: "charts" });
      course.append(place);
      charts.small(place, history.x, history.lines, "commits");
      if (history.breaks.length) {
        course.append(make("details", {}, make("summary", {}, `${history.breaks.length} breaks: why points cannot be compared`),
          make("ul", {}, ...history.breaks.map((text) => make("li", {}, text)))));
      }
    } else {
      course.append(make("p", { class: "quiet" }, "Measured at one commit: there is no course over commits."));
    }
    course.append(make("h3", {}, "Samples of the newest record"));
    if (data.samples.compiled) {
      const place = make("div", { class: "charts" });
      course.append(place);
      charts.samples(place, data.samples);
    } else {
      course.append(make("p", { class: "quiet" }, `No samples: ${data.word}.`));
    }
    site.setAddress([["cell", path]]);
  }
  choice.addEventListener("change", show);
  document.getElementById("show").addEventListener("click", show);
  document.getElementById("open").addEventListener("click", (event) => details.open(choice.value, event.target));
  if (wanted) { show(); }
})();
