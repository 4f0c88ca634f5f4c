// Shows the passages of PASSAGES (studies/docs/search.py) that a question finds, a page at a time.
// MiniSearch ranks them; the stemmer is Sphinx's. Nothing is loaded later: pages are read from disks, too.

// Words of a question that say nothing of its subject.
const EMPTY = new Set(
  "a about am an and any are as at be been by can do does for from get has have how i if in is it its me my of on or our should so that the their there these this to use used using want was we what when where which who why will with you your".split(" "),
);
// What a reader may ask with other words than the pages have.
const ALSO = {
  automate: ["workflow"],
  broke: ["worse", "fail"],
  broken: ["worse", "fail"],
  ci: ["workflow", "pull", "github"],
  error: ["fail"],
  integration: ["workflow", "pull", "github"],
  mac: ["linux"],
  macos: ["linux"],
  regress: ["worse"],
  slower: ["slow", "worse"],
  slowdown: ["slow", "worse"],
  upgrade: ["release"],
  windows: ["linux"],
};
const FIELDS = ["page", "anchor", "title", "heading", "text", "task"];
const MOST_PAGES = 20;
const MOST_WORDS = 30; // of an excerpt
const WORD = /[\p{L}\p{N}_]+/gu;

// A name such as get_compiled is a word, and so is each part of it.
const wordsOf = (text) => (text.match(WORD) ?? []).flatMap((word) => [...new Set([word, ...word.split("_")])].filter(Boolean));
const stemmer = new EnglishStemmer();
const stemOf = (word) => stemmer.stemWord(word.toLowerCase());

const search = new MiniSearch({
  fields: ["title", "heading", "task", "text"],
  storeFields: ["page", "anchor"],
  processTerm: stemOf,
  tokenize: wordsOf,
  // A page begins with its title.
  extractField: (passage, name) => (name === "heading" ? passage.heading || passage.title : passage[name]),
  searchOptions: {
    boost: { heading: 4, task: 4, title: 2 },
    // Decisions and reports come after the pages that explain how things are; fields of JSON, options
    // and members of classes, after text: there are so many.
    boostDocument: (_id, _term, { page, anchor }) =>
      /^(adr|reports)\//.test(page) ? 0.2 : anchor && /^(schemas$|api\/|commands\/(?!index))/.test(page) ? 0.5 : 1,
    prefix: (term) => term.length > 3,
    fuzzy: (term) => (term.length > 5 ? 0.2 : false),
    weights: { prefix: 0.3, fuzzy: 0.2 },
    processTerm: (word) => [word, ...(ALSO[word.toLowerCase()] ?? [])].map(stemOf),
  },
});
const passages = PASSAGES.map((row, id) => ({ id, ...Object.fromEntries(FIELDS.map((name, i) => [name, row[i]])) }));
search.addAll(passages);

function element(name, ...children) {
  const made = document.createElement(name);
  made.append(...children);
  return made;
}

// The part of a text with the most different words that were found, each of them marked.
function excerptOf(text, found) {
  const words = text.split(" ");
  const stems = words.map((word) => (word.match(WORD) ?? []).map(stemOf).find((stem) => found.has(stem)));
  let [first, most] = [0, 0];
  stems.forEach((stem, start) => {
    if (stem === undefined) return;
    const count = new Set(stems.slice(start, start + MOST_WORDS - 6).filter(Boolean)).size;
    if (count > most) [first, most] = [start, count];
  });
  const begin = Math.max(0, first - 6);
  const shown = element("p", begin > 0 ? "… " : "");
  words.slice(begin, begin + MOST_WORDS).forEach((word, i) => {
    shown.append(stems[begin + i] === undefined ? word : element("mark", word), " ");
  });
  if (begin + MOST_WORDS < words.length) shown.append("…");
  return shown;
}

function show(question) {
  const asked = question.match(WORD) ?? [];
  const told = asked.filter((word) => !EMPTY.has(word.toLowerCase()));
  const pages = new Map(); // the best passages of each page, the best page first
  for (const { id, page, terms } of search.search((told.length ? told : asked).join(" "))) {
    if (!pages.has(page)) pages.set(page, []);
    if (pages.get(page).length < 3) pages.get(page).push({ ...passages[id], terms });
  }
  const list = document.createElement("ol");
  for (const [best, ...others] of [...pages.values()].slice(0, MOST_PAGES)) {
    const addressOf = ({ page, anchor }) => `${page}.html${anchor && `#${anchor}`}`;
    const link = element("a", best.heading ? `${best.title}: ${best.heading}` : best.title);
    link.href = addressOf(best);
    const item = element("li", link, excerptOf(best.text, new Set(best.terms)));
    const more = element("p");
    for (const one of others) {
      const other = element("a", one.heading || one.title);
      other.href = addressOf(one);
      more.append(more.childNodes.length ? " · " : "Also: ", other);
    }
    if (others.length) item.append(more);
    list.append(item);
  }
  const count = pages.size > MOST_PAGES ? `The best ${MOST_PAGES} of ${pages.size} pages` : `${pages.size} ${pages.size === 1 ? "page" : "pages"}`;
  const status = element("p", pages.size ? `${count} found for “${question}”.` : `Nothing found for “${question}”.`);
  status.tabIndex = -1;
  document.getElementById("search-results").replaceChildren(status, list);
  status.focus(); // the next Tab reaches the first link
}

const field = document.querySelector("#main-content input[name=q]");
field.form.addEventListener("submit", (event) => {
  event.preventDefault(); // the passages are here already
  history.pushState(null, "", `?${new URLSearchParams({ q: field.value })}`);
  ask();
});
window.addEventListener("popstate", ask);

function ask() {
  const question = new URLSearchParams(location.search).get("q")?.trim() ?? "";
  field.value = question;
  if (question) show(question);
  else field.focus();
}

ask();
