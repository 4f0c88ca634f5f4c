"""Change asv's page: show our records well, load no file from elsewhere, run no script of a record.

asv has no hook for this, so the text of its files is replaced at several places. Each place must
occur as often as listed: another version of asv raises an error instead of making a broken site.

Names and machines come from other people's records, and asv inserts some of them as HTML. Two
things keep a script in them from running: each such place inserts text (``patches.toml``), and the
content security policy allows only the scripts of the site itself.
"""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from typing import TYPE_CHECKING

from ivhl.errors import ResultsError

if TYPE_CHECKING:
    from pathlib import Path

_NAV_BEFORE = '<li id="nav-li-graphdisplay">'
# asv's pages are in a folder of the site.
_NAV = (
    '<li id="nav-li-ivhl-overview"><a href="../index.html">Overview</a></li>\n'
    '\t<li id="nav-li-ivhl-matrix"><a href="../matrix.html">Matrix</a></li>\n        '
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
# It sends the reader to an error page if a file from another host does not load: there are none.
_INLINE = re.compile(
    r'<script type="text/javascript">\s*function js_load_failure\(\).*?</script>\s*', re.DOTALL
)
# File of asv to the places at which it is changed, each with the text that is there then.
_PLACES: dict[str, list[dict[str, str]]] = tomllib.loads(
    files("ivhl.asv").joinpath("patches.toml").read_text(encoding="utf-8")
)
_ELSEWHERE = re.compile(r"<(?:script|link|img)\b[^>]*\b(?:src|href)=\"https?://[^>]*>")


def patch_index(html: str) -> str:
    """Return asv's ``index.html`` with our script and with local files only.

    Raises:
        ResultsError: If the page differs from that of the supported asv.
    """
    html = _replace_once(patch_script("index.html", html), _INLINE, "")
    for name, ending in VENDORED.items():
        address = rf'"https://[^"]*/{re.escape(ending)}"'
        if name.endswith(".css"):
            tag = re.compile(rf'<link rel="stylesheet" href={address}[^>]*>')
            local = f'<link rel="stylesheet" href="vendor/{name}">'
        else:
            tag = re.compile(rf"<script src={address}[^>]*></script>")
            local = f'<script src="vendor/{name}"></script>'
        html = _replace_once(html, tag, local)
    left = _ELSEWHERE.search(html)
    if left:
        raise _changed("index.html", f"still loads {left[0]!r} from another host")
    return html


def linked_to_ours(html: str) -> str:
    """Return a page from ``patch_index`` with links to the site of ``ivhl publish`` around it.

    Raises:
        ResultsError: If the page differs from that of the supported asv.
    """
    return _replace_once(html, re.compile(re.escape(_NAV_BEFORE)), _NAV + _NAV_BEFORE)


def patch_script(name: str, text: str) -> str:
    """Return one of asv's files, changed at the places of ``patches.toml``.

    Args:
        name: Its file name, e.g. ``summarylist.js``.
        text: Its text.

    Raises:
        ResultsError: If the script differs from that of the supported asv.
    """
    for place in _PLACES.get(name, ()):
        if (n := text.count(place["old"])) != 1:
            raise _changed(name, f"must contain {place['old']!r} once (found {n} times)")
        text = text.replace(place["old"], place["new"])
    return text


def _replace_once(html: str, place: re.Pattern[str], text: str) -> str:
    changed, count = place.subn(lambda _: text, html)
    if count != 1:
        raise _changed("index.html", f"must contain {place.pattern!r} once (found {count} times)")
    return changed


def _changed(name: str, what: str) -> ResultsError:
    return ResultsError(
        f"asv's {name} {what}", hint="install asv 0.6.6, for which ivhl.asv.site is written"
    )


def write_vendored(html_dir: Path) -> None:
    """Write the files that asv's page loads: ours, and those of others with their licences."""
    for folder, target in (("static", html_dir), ("vendor", html_dir / "vendor")):
        target.mkdir(exist_ok=True)
        for source in files("ivhl.asv").joinpath(folder).iterdir():
            (target / source.name).write_bytes(source.read_bytes())


def check_replaceable(html_dir: Path) -> None:
    """Refuse a folder that asv would delete and did not make.

    Raises:
        ResultsError: If it has files and none of asv's.
    """
    is_other = html_dir.is_symlink() or (html_dir.exists() and not html_dir.is_dir())
    if is_other or (
        html_dir.exists() and not (html_dir / "asv.js").is_file() and any(html_dir.iterdir())
    ):
        raise ResultsError(
            f"{html_dir} exists and is not a site made by asv, which would delete it",
            hint="choose another folder: html_dir in asv.conf.json, or --html-dir",
        )


def join_asv_site(html_dir: Path) -> None:
    """Let asv's page show our records, work without a network, and take no name for HTML.

    Raises:
        ResultsError: If asv's page differs from that of the supported asv.
    """
    for name in _PLACES:
        text = (html_dir / name).read_text(encoding="utf-8")
        text = patch_index(text) if name == "index.html" else patch_script(name, text)
        (html_dir / name).write_text(text, encoding="utf-8")
    # Nothing leads there any more: it explains that a file from another host did not load.
    (html_dir / "error.html").unlink(missing_ok=True)
    write_vendored(html_dir)
