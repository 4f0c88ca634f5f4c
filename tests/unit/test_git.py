"""What git says is read whatever the names of branches, tags and files are."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from ivhl.errors import SpecError
from ivhl.git import (
    archive,
    changed_files,
    clone_at,
    commit_order,
    commit_time_ms,
    commit_titles,
    commits_of_range,
    commits_of_same_code,
    commits_there,
    current_commit,
    default_branch,
    files_at,
    find_commit,
    is_uncommitted,
    leads_to,
    lock_texts,
    published_branches,
)
from ivhl.init.source import read_source
from tests.builders.fleet import commit, make_fleet_project
from tests.builders.project import git

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_LATIN = os.fsdecode(b"br\xff")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_fleet_project(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", [_LATIN, 'a"b', "it's", "$(id)", "a;b", "<script>"])
def test_a_branch_of_any_name_is_published(root: Path, name: str) -> None:
    git(root, "checkout", "-q", "-b", name)
    head = commit(root, "more")
    assert find_commit(root, name) == head
    assert published_branches(root, ["main"]) == ["main", "HEAD"]
    git(root, "branch", "-D", "-q", "main")
    assert default_branch(root) == name


def test_a_tag_and_a_lock_of_any_name_are_passed_over(root: Path) -> None:
    git(root, "tag", _LATIN)
    assert commits_of_range(root, "tags") == (git(root, "rev-parse", "HEAD"),)
    before = lock_texts(root, ["py3.12-torch2.6.0"])
    (root / "envs" / "locks" / f"{_LATIN}.txt").write_text("another one")
    commit(root, "a file")
    assert lock_texts(root, ["py3.12-torch2.6.0"]) == before


@pytest.mark.parametrize("folder", [".", "a project"])
def test_a_commit_that_only_adds_results_has_the_same_code(tmp_path: Path, folder: str) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    root = tmp_path / folder
    (root / "results").mkdir(parents=True)
    (tmp_path / "LICENSE").write_text("free")
    (root / "code.py").write_text("1")
    commits = [commit(tmp_path, "code")]
    for path, text in (
        ("results/records", "1"),
        ("code.py", "2"),
        ("results/records", "2"),
        ("code.py", "1"),
        ("code/results", "1"),
    ):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text)
        commits.append(commit(tmp_path, path))
    first, second, changed, again, back, other = commits
    every = [*commits, "e" * 40, "HEAD", f"{first}\n{second}", "", "\u2028"]
    assert commits_of_same_code(root, first, every) == {first, second, back}
    assert commits_of_same_code(root, again, every) == {changed, again}
    assert commits_of_same_code(root, other, every) == {other}
    assert commits_there(root, every) == set(commits)


def test_a_name_with_a_null_byte_is_refused(root: Path) -> None:
    with pytest.raises(SpecError, match="knows no commit"):
        find_commit(root, "a\0b")


@pytest.mark.parametrize(
    "name", ["HEAD~1", "main", "--output=x", "a" * 39, "A" * 40, ":/more", ""]
)
def test_a_text_of_a_record_never_reaches_git_as_an_expression(root: Path, name: str) -> None:
    commit(root, "more")
    head = git(root, "rev-parse", "HEAD")
    calls: list[Callable[[str], object]] = [
        lambda text: clone_at(root, text, root / ".asv" / "clone"),
        lambda text: archive(root, text, "x"),
        lambda text: files_at(root, text, "envs", ".txt"),
        lambda text: commit_time_ms(root, text),
        lambda text: leads_to(root, head, text),
        lambda text: leads_to(root, text, head),
        lambda text: commit_titles(root, [text]),
    ]
    for call in calls:
        with pytest.raises(SpecError, match="must be a full hash"):
            call(name)
        assert call(head) is not None
        shutil.rmtree(root / ".asv", ignore_errors=True)


def test_an_option_is_no_name_of_a_commit(root: Path) -> None:
    for name in ("--all", "--since=now", "--git-path=x"):
        with pytest.raises(SpecError, match=f"knows no commit '{name}'"):
            find_commit(root, name)


@pytest.mark.parametrize(
    ("file", "uncommitted"),
    [
        (None, False),
        ("pyproject.toml", True),
        ("notes.txt", False),
        ("new.py", True),
        ("records/here.py", False),
    ],
)
def test_a_tree_is_uncommitted_if_a_tracked_file_or_any_code_outside_of_the_records_differs(
    root: Path,
    file: str | None,
    uncommitted: bool,  # noqa: FBT001  (a parameter of the test)
) -> None:
    if file is not None:
        (root / file).parent.mkdir(exist_ok=True)
        with (root / file).open("a", encoding="utf-8") as stream:
            stream.write("\n# changed\n")
    assert is_uncommitted(root / "envs", root / "records") is uncommitted


def test_without_a_repository_the_commit_is_zeros_and_nobody_knows_what_is_uncommitted(
    tmp_path: Path,
) -> None:
    assert current_commit(tmp_path) == "0" * 40
    assert is_uncommitted(tmp_path, tmp_path / "records") is None


def test_without_a_repository_no_commit_is_at_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody named HEAD. What git says in another language is recognised, too."""
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("LANGUAGE", "de")
    for ask in (
        lambda: find_commit(tmp_path, "HEAD"),
        lambda: commits_of_range(tmp_path, "a..b"),
        lambda: lock_texts(tmp_path, ["py3.12-torch2.6.0"]),
        lambda: changed_files(tmp_path),
    ):
        with pytest.raises(SpecError, match=f"^{tmp_path}: is in no git repository$") as error:
            ask()
        assert "git init" in error.value.hint
    make_fleet_project(tmp_path)
    with pytest.raises(SpecError, match="git knows no commit 'a'"):
        find_commit(tmp_path, "a")


def test_a_repository_of_another_user_is_refused_in_the_words_of_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container the clone often has another owner; git then reads nothing of it."""
    make_fleet_project(tmp_path)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    for ask in (
        lambda: current_commit(tmp_path),
        lambda: find_commit(tmp_path, "HEAD"),
        lambda: is_uncommitted(tmp_path, tmp_path / "records"),
        lambda: commit_order(tmp_path),
        lambda: read_source(tmp_path),
    ):
        with pytest.raises(SpecError, match="git says: detected dubious ownership") as error:
            ask()
        assert f"--add safe.directory {tmp_path}" in error.value.hint
