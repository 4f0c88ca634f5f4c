// Lists the versions of the documentation that ../versions.js has, each with this page
// where that version has it, else with its front page.
document.addEventListener("DOMContentLoaded", () => {
  for (const switcher of document.querySelectorAll(".versions")) {
    const { docs, page } = switcher.dataset;
    for (const [version, pages] of Object.entries(window.VERSIONS ?? {})) {
      const link = document.createElement("a");
      link.href = `${docs}/${version}/${pages.includes(page) ? page : "index.html"}`;
      link.textContent = version;
      const item = document.createElement("li");
      item.append(link);
      switcher.querySelector("ul").append(item);
    }
  }
});
