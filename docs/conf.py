"""Configuration of Sphinx. ``python -m studies.docs`` stages the pages that it reads."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sphinx
from docutils import nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

project = "ivhl"
author = "the ivhl founders"
extensions = ["myst_parser", "sphinx.ext.napoleon", "studies.docs.search"]
myst_heading_anchors = 6
smartquotes = False  # it makes a dash of the two hyphens of an option
add_module_names = False
python_maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"
html_theme = "pydata_sphinx_theme"
html_title = "ivhl"
html_favicon = "theme/static/favicon.svg"
_stemmer = Path(sphinx.__file__).parent / "search" / "minified-js"
html_static_path = [
    "theme/static",
    "theme/vendor",
    *(str(_stemmer / f"{name}-stemmer.js") for name in ("base", "english")),
]
templates_path = ["theme/templates"]
html_css_files = ["site.css"]
html_js_files = [("versions.js", {"defer": "defer"})]
html_additional_pages = {"search": "search.html"}
html_context = {"default_mode": "auto"}  # without it, the theme's script complains
html_copy_source = False
html_show_sourcelink = False
html_use_index = False
html_domain_indices = False
html_show_copyright = False
html_sidebars = {"**": ["navigation"]}
html_theme_options = {
    "logo": {"text": "ivhl"},
    "navbar_start": ["navbar-logo", "menu"],
    "navbar_center": [],
    "navbar_end": ["results", "versions", "theme-switcher", "navbar-icon-links"],
    "github_url": "https://github.com/ivhl/ivhl",
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "show_prev_next": False,
    "footer_start": [],
    "footer_end": ["sphinx-version", "theme-version"],
    "search_bar_text": "Search the documentation",
}
_LONGEST_DESCRIPTION = 160
_LONGEST_NAME = 24  # that no cell of a table breaks


def _describe(
    _app: Sphinx,
    _page: str,
    _template: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Give a page the description that search engines show: its first paragraph."""
    paragraphs = [] if doctree is None else doctree.findall(nodes.paragraph)
    text = next((" ".join(one.astext().split()) for one in paragraphs), "")
    if text:
        shown = (
            text if len(text) <= _LONGEST_DESCRIPTION else f"{text[: _LONGEST_DESCRIPTION - 3]}..."
        )
        context["metatags"] += f'<meta name="description" content="{escape(shown)}">\n'


def _keep_names_whole(_app: Sphinx, document: nodes.document, _page: str) -> None:
    """Mark the short names in tables, which a narrow cell would break."""
    for table in document.findall(nodes.table):
        for name in table.findall(nodes.literal):
            if len(name.astext()) <= _LONGEST_NAME:
                name["classes"].append("whole")


def _colour_without_scripts(app: Sphinx, _error: Exception | None) -> None:
    """Write the colours of the reader's system, for as long as no script has chosen a theme.

    The theme has them for the attribute that its script sets. A template of it is left in its files.
    """
    static = Path(app.outdir) / "_static"
    files = ("styles/pydata-sphinx-theme.css", "pygments.css")
    css = "".join((static / name).read_text(encoding="utf-8") for name in files)
    css = re.sub(r"(?s)/\*.*?\*/", "", css)
    text = "".join(_rules(css, "light"))
    text += f"@media (prefers-color-scheme: dark) {{\n{''.join(_rules(css, 'dark'))}}}\n"
    (static / "auto.css").write_text(text, encoding="utf-8")
    (static / "webpack-macros.html").unlink(missing_ok=True)


def _rules(css: str, theme: str) -> Iterator[str]:
    """Yield the rules of a theme that set variables or colour code, for the theme *auto*."""
    chosen = re.compile(rf"html\[data-theme=\"?{theme}\"?\](?: \.highlight\b[^,{{]*)?\s*")
    for selectors, body in re.findall(r"([^{}]*)\{([^{}]*)\}", css):
        kept = [one for one in map(str.strip, selectors.split(",")) if chosen.fullmatch(one)]
        if kept:
            shown = re.sub(r"data-theme=\"?\w+\"?", "data-theme=auto", ", ".join(kept))
            yield f"{shown} {{{body}}}\n"


def setup(app: Sphinx) -> None:
    """Connect what the extensions lack."""
    app.connect("builder-inited", _without_search_of_sphinx)
    app.connect("doctree-resolved", _keep_names_whole)
    app.connect("html-page-context", _describe)
    # After the theme, which writes the colours of code at the end, too.
    app.connect("build-finished", _colour_without_scripts, priority=900)


def _without_search_of_sphinx(app: Sphinx) -> None:
    """Write no index for Sphinx's search: studies.docs.search takes its place."""
    app.builder.search = False
