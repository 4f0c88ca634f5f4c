"use strict";
(function () {
  // The address contains the id of the open dialog: it can be linked to, and Back closes it.
  function targetOfAddress() {
    var id = decodeURIComponent(location.hash.slice(1));
    return id ? document.getElementById(id) : null;
  }
  function openFromAddress() {
    var target = targetOfAddress();
    document.querySelectorAll("dialog[open]").forEach(function (other) {
      if (other !== target) { other.close(); }
    });
    if (!target) { return; }
    if (target.tagName === "DIALOG") {
      if (!target.open) { target.showModal(); target.scrollTop = 0; }
    } else if (target.tagName === "DETAILS") {
      target.open = true;
      target.scrollIntoView();
    }
  }
  // Prevents the browser's jump to the target: dialogs are at the end of the page.
  document.addEventListener("click", function (event) {
    var link = event.target.closest("a[href^='#']");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) { return; }
    var target = document.getElementById(decodeURIComponent(link.hash.slice(1)));
    if (!target || target.tagName !== "DIALOG") { return; }
    event.preventDefault();
    history.pushState(null, "", link.hash);
    openFromAddress();
  });
  function forgetAddress() {
    history.replaceState(null, "", location.pathname + location.search);
  }
  document.querySelectorAll("dialog").forEach(function (dialog) {
    dialog.addEventListener("close", function () {
      if (decodeURIComponent(location.hash.slice(1)) === dialog.id) { forgetAddress(); }
    });
    dialog.addEventListener("click", function (event) {
      if (event.target === dialog) { dialog.close(); }
    });
    dialog.querySelector(".close").addEventListener("click", function (event) {
      event.preventDefault();
      dialog.close();
    });
  });
  window.addEventListener("popstate", openFromAddress);
  window.addEventListener("hashchange", openFromAddress);
  if (location.hash) {
    openFromAddress();
    var cell = Array.from(document.querySelectorAll("a.cell")).find(function (link) {
      return link.hash === location.hash;
    });
    if (cell) { cell.scrollIntoView({block: "center"}); }
  }

  function copyText(text, element) {
    if (navigator.clipboard) { return navigator.clipboard.writeText(text); }
    var range = document.createRange();
    range.selectNodeContents(element);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    return document.execCommand("copy") ? Promise.resolve() : Promise.reject(new Error("copy"));
  }
  document.querySelectorAll(".copy").forEach(function (button) {
    button.addEventListener("click", function () {
      var code = button.parentElement.querySelector("code");
      copyText(code.textContent, code).then(
        function () { button.textContent = "Copied"; },
        function () { button.textContent = "Select and copy"; }
      );
      setTimeout(function () { button.textContent = "Copy"; }, 2000);
    });
  });

  var filters = document.getElementById("filters");
  if (!filters) { return; }
  filters.hidden = false;
  var text = document.getElementById("text-filter");
  var boxes = Array.from(filters.querySelectorAll("input[type=checkbox]"));
  var cards = Array.from(document.querySelectorAll(".matrix"));
  function applyFilters() {
    var words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    var wanted = boxes.filter(function (box) { return box.checked; })
      .map(function (box) { return box.value; });
    var shown = 0;
    cards.forEach(function (card) {
      var has = card.dataset.statuses.split(" ");
      var about = card.dataset.text.toLowerCase();
      var fits = words.every(function (word) { return about.includes(word); }) &&
        (!wanted.length || wanted.some(function (status) { return has.includes(status); }));
      card.hidden = !fits;
      shown += fits ? 1 : 0;
    });
    document.querySelectorAll(".workload").forEach(function (section) {
      section.hidden = shown < cards.length && !section.querySelector(".matrix:not([hidden])");
    });
    var all = shown === cards.length;
    document.getElementById("filter-result").textContent =
      all ? "" : shown + " of " + cards.length + " matrices";
  }
  filters.addEventListener("input", applyFilters);
  filters.addEventListener("submit", function (event) { event.preventDefault(); });
  applyFilters();
})();
