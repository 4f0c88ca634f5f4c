"""Pages are staged for Sphinx with links that work there; versions are found from folders."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from studies.docs.stage import FRONT, PageError, pages_of, stage
from studies.docs.versions import version_of, write_versions
from tests.builders.project import git

ROOT = Path(__file__).parents[2]
MORE = {"Reference": ("- [Functions](api/index.md): by module.",)}
# What readers load that is not ours, as its release has it: `npm pack minisearch@7.2.0`, dist/umd/.
VENDORED = {
    "minisearch-7.2.0.js": "03c27931eb603af1d3358579e9885eafdb6a2f5fa9929557b3e77d7e99d06d03",
    "LICENSE.minisearch.txt": "70d37354d6395629fb99edb28cb37a5d356ffa24a48cd02a5def5b83a300a899",
}
FILES = {
    "README.md": "# ivhl\n\n[the words](docs/glossary.md#slow)\n\n## Next\n\nnot on the site\n",
    "docs/README.md": (
        "# Documentation\n\n## Tutorial\n\n- [Install](../README.md): first.\n"
        "- [Words](glossary.md): each.\n\n## Reference\n\n- [Decisions](adr/): why.\n"
    ),
    "docs/glossary.md": "# The words\n\n| word | meaning |\n|---|---|\n| works, slow | if so |\n",
    "docs/commands.md": "# Commands\n",
    "docs/adr/0001-one.md": "# 1\n\n[a file](../../ivhl/a.py), [glossary.md](../glossary.md#x)\n",
    "docs/reports/README.md": (
        "# Reports\n\nA \\`\\`super().\\_\\_init\\_\\_\\`\\` of pytorch/pytorch#19, not of `a/b#1`\n"
    ),
    "docs/images/a.png": "",
    "docs/schemas/gate.json": "{}",
    "observatory/README.md": "# Observatory\n\n![shot](../docs/images/a.png)\n",
    "CONTRIBUTING.md": "# Contributing\n\n[JSON](docs/schemas/gate.json) and [all](docs/schemas/)\n",
    "ivhl/a.py": "",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a folder with a few pages."""
    for name, text in FILES.items():
        path = tmp_path / "repository" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "repository"


def staged(repository: Path) -> dict[str, str]:
    target = repository.parent / "staged"
    stage(repository, target, "v1.0.0", MORE)
    return {p.relative_to(target).as_posix(): p.read_text("utf-8") for p in target.rglob("*.md")}


def test_links_lead_to_pages_and_to_files_at_the_version(repository: Path) -> None:
    pages = staged(repository)
    assert "[the words](glossary.md#slow)" in pages["index.md"]
    at = "https://github.com/ivhl/ivhl/blob/v1.0.0"
    assert f"[a file]({at}/ivhl/a.py), [](../glossary.md#x)" in pages["adr/0001-one.md"]
    assert "![shot](images/a.png)" in pages["observatory.md"]
    assert "[JSON](schemas.md#gate) and [all](schemas.md)" in pages["contributing.md"]
    assert "| {index}`!works`, {index}`!slow` | if so |" in pages["glossary.md"]


def test_the_front_page_has_the_readme_and_the_groups_of_the_navigation(repository: Path) -> None:
    front = staged(repository)["index.md"]
    assert front.startswith("# ivhl\n")
    assert "not on the site" not in front
    tutorial, reference = front.split("```{toctree}")[1:]
    assert ":caption: Tutorial\n\nInstall <self>\nWords <glossary>\n```" in tutorial
    assert ":caption: Reference\n\nDecisions <adr/index>\nFunctions <api/index>\n" in reference
    assert "- [Functions](api/index.md): by module." in front
    assert "(index.md)" not in front


def test_a_page_has_the_name_that_the_navigation_has_for_it(repository: Path) -> None:
    pages = staged(repository)
    assert pages["glossary.md"].startswith("# Words\n")
    assert pages["adr/0001-one.md"].startswith("# 1\n")


def test_numbers_of_issues_are_links_and_code_of_docstrings_is_code(repository: Path) -> None:
    page = staged(repository)["reports/index.md"]
    issue = "[pytorch/pytorch#19](https://github.com/pytorch/pytorch/issues/19)"
    assert f"A `super().__init__` of {issue}, not of `a/b#1`\n" in page


def test_what_readers_load_is_as_its_release_has_it() -> None:
    assert {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (ROOT / "docs" / "theme" / "vendor").iterdir()
    } == VENDORED


def test_code_keeps_its_text(repository: Path) -> None:
    page = repository / "docs" / "adr" / "0001-one.md"
    text = "````text\n[x](nowhere.md)\n```\n[y](nowhere.md)\n````\n"
    page.write_text(text, encoding="utf-8")
    assert staged(repository)["adr/0001-one.md"] == text


def test_a_link_that_leads_nowhere_is_named_with_its_place(repository: Path) -> None:
    page = repository / "docs" / "glossary.md"
    page.write_text("# Words\n\nSee [this](gone.md).\n", encoding="utf-8")
    with pytest.raises(PageError, match=r"^docs/glossary\.md:3: .*\(got docs/gone\.md\)$"):
        staged(repository)


def test_a_group_that_the_code_fills_must_be_in_the_navigation(repository: Path) -> None:
    page = repository / "docs" / "README.md"
    page.write_text("# Documentation\n\n## Tutorial\n", encoding="utf-8")
    with pytest.raises(PageError, match="a group must be there: Reference"):
        staged(repository)


def test_every_page_of_the_repository_is_staged(tmp_path: Path) -> None:
    stage(ROOT, tmp_path / "staged", "main", MORE)
    names = {p.relative_to(tmp_path / "staged").as_posix() for p in tmp_path.rglob("*.md")}
    written = list((ROOT / "docs").rglob("*.md"))
    assert [
        path for path in written if path.relative_to(ROOT).as_posix() not in pages_of(ROOT)
    ] == []
    assert len(names) == len(written) + len({"observatory", "contributing", "adr/index"})
    assert f"{FRONT}.md" in names


def test_the_version_is_the_tag_of_the_commit_or_main(tmp_path: Path) -> None:
    assert version_of(tmp_path) == ("main", "main")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "one")
    head = git(tmp_path, "rev-parse", "HEAD").strip()
    assert version_of(tmp_path) == ("main", head)
    git(tmp_path, "tag", "v1.2.0")
    assert version_of(tmp_path) == ("1.2.0", "v1.2.0")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "two")
    assert version_of(tmp_path)[0] == "main"


def test_the_newest_release_comes_first_and_is_what_the_front_leads_to(tmp_path: Path) -> None:
    for name in ("main", "1.9.0", "1.10.0", "1.10.0/api"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").touch()
    (tmp_path / "1.11.0").mkdir()  # a build that failed
    (tmp_path / "main" / "_static").mkdir()
    (tmp_path / "main" / "_static" / "template.html").touch()
    write_versions(tmp_path)
    listed = (tmp_path / "versions.js").read_text(encoding="utf-8")
    assert listed == (
        'window.VERSIONS = {"1.10.0": ["api/index.html", "index.html"], '
        '"1.9.0": ["index.html"], "main": ["index.html"]};\nwindow.HAS_RESULTS = false;\n'
    )
    assert "url=1.10.0/index.html" in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_the_menus_have_results_where_they_stand_beside_the_documentation(tmp_path: Path) -> None:
    (tmp_path / "docs" / "main").mkdir(parents=True)
    (tmp_path / "docs" / "main" / "index.html").touch()
    (tmp_path / "index.html").touch()
    write_versions(tmp_path / "docs")
    listed = (tmp_path / "docs" / "versions.js").read_text(encoding="utf-8")
    assert "window.HAS_RESULTS = true;" in listed
