"""Configuration of Sphinx. ``python -m studies.docs`` stages the pages that it reads."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "ivhl"
author = "the ivhl founders"
extensions = ["myst_parser", "sphinx.ext.napoleon"]
myst_heading_anchors = 6
smartquotes = False  # it makes a dash of the two hyphens of an option
add_module_names = False
python_maximum_signature_line_length = 80
toc_object_entries = False
html_theme = "pydata_sphinx_theme"
html_title = "ivhl"
html_static_path = ["theme/static"]
templates_path = ["theme/templates"]
html_css_files = ["site.css"]
html_js_files = [("versions.js", {"defer": "defer"})]
html_search_scorer = str(Path(__file__).parent / "theme" / "scorer.js")
html_copy_source = False
html_show_sourcelink = False
html_use_index = False
html_domain_indices = False
html_show_copyright = False
html_sidebars = {"**": ["navigation"]}
html_theme_options = {
    "logo": {"text": "ivhl"},
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


def setup(app: Sphinx) -> None:
    """Connect what the extensions lack."""
    app.connect("html-page-context", _describe)
