"""asv's page can be patched, and our copies replace all files from other hosts."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest

from ivhl.asv.site import VENDORED, linked_to_ours, patch_index, patch_script, write_vendored
from ivhl.errors import ResultsError

if TYPE_CHECKING:
    from pathlib import Path

INDEX = files("asv").joinpath("www", "index.html").read_text(encoding="utf-8")
VENDOR = files("ivhl.asv").joinpath("vendor")
ROW = re.compile(r"^\| `(?P<name>[^`]+)` \|.*\| `(?P<digest>[0-9a-f]{64})` \|$", re.MULTILINE)


def test_the_page_of_the_installed_asv_can_be_patched() -> None:
    patched = patch_index(INDEX)
    assert '"../' not in patched  # `asv preview` has asv's pages only
    assert patched.count('id="ivhl-side"') == 1
    linked = linked_to_ours(patched)
    assert linked.count('href="../index.html"') == 1
    assert linked.count('href="../matrix.html"') == 1
    assert "integrity=" not in patched
    assert not re.search(r"<(script|link)[^>]*https?://", patched)


def test_every_file_that_the_page_loads_is_written(tmp_path: Path) -> None:
    write_vendored(tmp_path)
    loaded = re.findall(r'(?:src|href)="(vendor/[^"]+)"', patch_index(INDEX))
    assert sorted(loaded) == sorted(f"vendor/{name}" for name in VENDORED)
    assert all((tmp_path / name).is_file() for name in (*loaded, "ivhl.js", "ivhl.css"))


def test_vendored_files_match_the_readme() -> None:
    listed = {
        row["name"]: row["digest"] for row in ROW.finditer((VENDOR / "README.md").read_text())
    }
    found = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in VENDOR.iterdir()
        if file.name != "README.md"
    }
    assert listed == found


def test_vendored_files_match_the_digests_in_asvs_page() -> None:
    """The digests in asv's page confirm the origin of the files."""
    checked = 0
    for name, ending in VENDORED.items():
        tag = re.search(rf'/{re.escape(ending)}" integrity="sha(256|512)-([^"]+)"', INDEX)
        assert tag, name
        # flot's minified files and this version of stupidtable are not on npm (vendor/README.md).
        if name.startswith(("jquery.flot.", "jquery.flot-")) and "orderBars" not in name:
            continue
        if name.startswith("stupidtable"):
            continue
        digest = hashlib.new(f"sha{tag[1]}", (VENDOR / name).read_bytes()).digest()
        assert base64.b64encode(digest).decode() == tag[2], name
        checked += 1
    assert checked == 5


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('<li id="nav-li-graphdisplay">', "<li>", "found 0 times"),
        ("</nav>", '<li id="nav-li-graphdisplay"></nav>', "found 2 times"),
        ("jquery-3.3.1.min.js", "jquery-4.0.0.min.js", "found 0 times"),
        ("</head>", '<script src="https://example.org/new.js"></script></head>', "another host"),
    ],
)
def test_a_page_of_another_asv_is_an_error(old: str, new: str, told: str) -> None:
    assert old in INDEX
    with pytest.raises(ResultsError, match=told):
        linked_to_ours(patch_index(INDEX.replace(old, new)))


def test_only_scripts_of_the_site_run_on_asvs_page() -> None:
    patched = patch_index(INDEX)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', patched)
    assert policy
    rules = dict(rule.split(maxsplit=1) for rule in policy[1].split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == "'self'"
    assert patched.index(policy[0]) < patched.index("<script")
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|javascript:", patched)


def test_every_script_of_the_installed_asv_inserts_names_as_text() -> None:
    """Each place of asv's scripts that builds HTML from a variable is known, and escapes it."""
    built = re.compile(r"""['"][^'"\n]*>[^'"\n]*['"]\s*\+\s*(?!\$\('<span>'\))[\w.\[\]]+""")
    shown = re.compile(r"html: true")
    left: dict[str, list[str]] = {}
    for file in files("asv").joinpath("www").iterdir():
        if file.name.endswith(".js") and not file.name.startswith("jquery"):
            text = patch_script(file.name, file.read_text(encoding="utf-8"))
            left[file.name] = built.findall(text) + shown.findall(text)
    assert {name: found for name, found in left.items() if found} == {
        # Of graphs, which hold no text.
        "asv_ui.js": ["html: true", "html: true"],
        # Dotted names, which ``ivhl.asv.files`` checks.
        "summarygrid.js": ["'<h1>' + group", "html: true"],
        # A part of one; a machine, line by line as text.
        "graphdisplay.js": ["\"/> ' + parts[j]", "html: true"],
        "summarylist.js": ["html: true"],
    }


@pytest.mark.parametrize(
    "name",
    [
        "asv.js",
        "asv_ui.js",
        "summarylist.js",
        "summarygrid.js",
        "graphdisplay.js",
        "regressions.js",
    ],
)
def test_a_script_of_another_asv_is_an_error(name: str) -> None:
    text = files("asv").joinpath("www", name).read_text(encoding="utf-8")
    patched = patch_script(name, text)
    with pytest.raises(ResultsError, match=f"asv's {name} must contain"):
        patch_script(name, patched)
