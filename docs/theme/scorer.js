// Sphinx's own scores, except that decisions and reports come after the pages that explain how
// things are: they have long texts, and match most words.
var Scorer = {
  score: ([page, , , , score]) => (/^(adr|reports)\//.test(page) ? score / 4 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
