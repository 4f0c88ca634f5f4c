"""Render the views as HTML and JSON."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ivhl.tracker.compat import Row
    from ivhl.tracker.views import CompatibilityView, SpeedupView

_TEMPLATES = Environment(
    loader=PackageLoader("ivhl.pages", "templates"),
    autoescape=True,  # exception messages come from untrusted code
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def _source(name: str) -> str:
    loader = _TEMPLATES.loader
    if loader is None:  # for the type checker: it is set above
        raise ValueError(name)
    return loader.get_source(_TEMPLATES, name)[0]


def _render(name: str, view: CompatibilityView | SpeedupView) -> str:
    script = _source("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _TEMPLATES.get_template(name).render(
        view=view, page=view.page, style=_source("style.css"), script=script, digest=digest
    )


def compatibility_html(view: CompatibilityView) -> str:
    """Return the page *Compatibility* as one self-contained file."""
    return _render("compatibility.html", view)


def speedup_html(view: SpeedupView) -> str:
    """Return the page *Speedup* as one self-contained file."""
    return _render("speedup.html", view)


def compatibility_json(rows: Iterable[Row]) -> str:
    """Return the rows as JSON, as ``ivhl compat --json`` prints them."""
    return json.dumps([row.to_dict() for row in rows], indent=1, allow_nan=False) + "\n"
