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
  // The parts of a course that were loaded, oldest first; each click loads the one before them.
  function drawCommits(into, parts) {
    const history = details.course(parts);
    const place = make("div", { class: "charts" });
    const older = parts[0].history.older;
    const more = make("button", { type: "button", class: "more" }, "Older commits, too");
    more.addEventListener("click", async () => {
      more.disabled = true;
      drawCommits(into, [await site.load(older), ...parts]);
      into.querySelector("h3").focus();
    });
    into.replaceChildren(make("h3", { tabindex: "-1" }, `Over ${history.x.length} commits`), ...(older ? [make("p", {}, more)] : []), place);
    charts.small(place, history.x, history.lines, "commits");
    if (history.breaks.length) {
      into.append(make("details", {}, make("summary", {}, `${history.breaks.length} ${history.breaks.length === 1 ? "break" : "breaks"}: why points cannot be compared`),
        make("ul", {}, ...history.breaks.map((text) => make("li", {}, text)))));
    }
  }
  async function show() {
    const path = choice.value;
    const data = await site.load(path);
    if (path !== choice.value) { return; }
    course.replaceChildren();
    if (data.points.length > 1 || data.history.older) {
      const commits = make("div", {});
      course.append(commits);
      drawCommits(commits, [data]);
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
