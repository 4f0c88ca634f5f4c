// Lists the versions of the documentation that ../versions.js has, each with this page
// where that version has it, else with its front page. Shows the link to the results, if any.
document.addEventListener("DOMContentLoaded", () => {
  if (window.HAS_RESULTS) {
    for (const link of document.querySelectorAll(".results")) {
      link.href = link.dataset.address;
      link.hidden = false;
    }
  }
  for (const switcher of document.querySelectorAll(".versions")) {
    const { docs, page } = switcher.dataset;
    const items = Object.entries(window.VERSIONS ?? {}).map(([version, pages]) => {
      const link = document.createElement("a");
      link.href = `${docs}/${version}/${pages.includes(page) ? page : "index.html"}`;
      link.textContent = version;
      const item = document.createElement("li");
      item.append(link);
      return item;
    });
    if (items.length) switcher.querySelector("ul").replaceChildren(...items);
  }
});
