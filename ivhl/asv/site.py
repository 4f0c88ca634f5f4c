"""Change asv's page: add links to our pages, and load no file from another host.

asv has no hook for this, so the text of its ``index.html`` is replaced at several places. Each place
must occur exactly once: another version of asv raises an error instead of making a broken site.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING

from ivhl.errors import ResultsError

if TYPE_CHECKING:
    from pathlib import Path

_NAV_BEFORE = '<li id="nav-li-graphdisplay">'
_NAV = (
    '<li id="nav-li-ivhl-compatibility"><a href="compatibility.html">Compatibility</a></li>\n'
    '\t<li id="nav-li-ivhl-speedup"><a href="speedup.html">Speedup</a></li>\n        '
)

# Our copy -> last part of the file's URL in asv's page.
VENDORED: dict[str, str] = {
    "jquery-3.3.1.min.js": "jquery-3.3.1.min.js",
    "jquery.flot-0.8.3.js": "jquery.flot.min.js",
    "jquery.flot.time-0.8.3.js": "jquery.flot.time.min.js",
    "jquery.flot.selection-0.8.3.js": "jquery.flot.selection.min.js",
    "jquery.flot.categories-0.8.3.js": "jquery.flot.categories.min.js",
    "jquery.flot.orderBars-1.0.0.js": "jquery.flot.orderBars.js",
    "stupidtable-1.1.3.min.js": "stupidtable.min.js",
    "md5-2.19.0.min.js": "md5.min.js",
    "bootstrap-3.1.1.min.js": "bootstrap.min.js",
    "bootstrap-3.1.1.min.css": "bootstrap.min.css",
}
_ELSEWHERE = re.compile(r"<(?:script|link|img)\b[^>]*\b(?:src|href)=\"https?://[^>]*>")


def patch_index(html: str) -> str:
    """Return asv's ``index.html`` with links to our pages and with local files only.

    Raises:
        ResultsError: If the page differs from that of the supported asv.
    """
    html = _replace_once(html, re.compile(re.escape(_NAV_BEFORE)), _NAV + _NAV_BEFORE)
    for name, ending in VENDORED.items():
        address = rf'"https://[^"]*/{re.escape(ending)}"'
        if name.endswith(".css"):
            tag = re.compile(rf'<link rel="stylesheet" href={address}[^>]*>')
            local = f'<link rel="stylesheet" href="vendor/{name}">'
        else:
            tag = re.compile(rf"<script src={address}[^>]*></script>")
            local = f'<script src="vendor/{name}" onerror="js_load_failure()"></script>'
        html = _replace_once(html, tag, local)
    left = _ELSEWHERE.search(html)
    if left:
        raise _changed(f"still loads {left[0]!r} from another host")
    return html


def _replace_once(html: str, place: re.Pattern[str], text: str) -> str:
    changed, count = place.subn(lambda _: text, html)
    if count != 1:
        raise _changed(f"must contain {place.pattern!r} once (found {count} times)")
    return changed


def _changed(what: str) -> ResultsError:
    return ResultsError(
        f"asv's index.html {what}",
        hint="install asv 0.6.6, for which ivhl.asv.site is written",
    )


def write_vendored(html_dir: Path) -> None:
    """Write the files that asv's page loads, with their licences, into ``vendor/``."""
    target = html_dir / "vendor"
    target.mkdir(exist_ok=True)
    for source in files("ivhl.asv").joinpath("vendor").iterdir():
        (target / source.name).write_bytes(source.read_bytes())


def join_asv_site(html_dir: Path) -> None:
    """Link asv's page to ours, and make it work without a network.

    Raises:
        ResultsError: If asv's page differs from that of the supported asv.
    """
    index = html_dir / "index.html"
    index.write_text(patch_index(index.read_text(encoding="utf-8")), encoding="utf-8")
    write_vendored(html_dir)
