"""A lock lists exactly the packages of a cell; only matched cells are compared."""

from __future__ import annotations

import datetime as dt
import os
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ivhl.errors import InterpreterError, LockError, SpecError, UnknownNameError
from ivhl.matrix import locks
from ivhl.matrix.check import check_locks
from ivhl.matrix.diff import diff_cells
from ivhl.matrix.locks import (
    Pin,
    ensure_lock,
    lock_mistakes,
    lock_path,
    lock_release,
    lock_state,
    make_lock,
    matrix_digest,
    parse_lock,
    unavailable_path,
)
from ivhl.matrix.spec import CellSpec, Matrix
from ivhl.matrix.uv import run_uv

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

OLD, NEW = CellSpec("3.12", "2.5.1"), CellSpec("3.13", "2.5.1")
LATER = CellSpec("3.12", "2.6.0")
HASH = "--hash=sha256:" + "0" * 64
PACKAGES = {"torch": "2.5.1", "sympy": "1.13.1", "mpmath": "1.3.0", "flit-core": "3.12.0"}
VIA = {"torch": "matrix.toml", "flit-core": "matrix.toml", "mpmath": "sympy"}


def matrix_of(**changes: Any) -> Matrix:  # noqa: ANN401  (raw TOML)
    return Matrix.model_validate(
        {
            "exclude-newer": dt.date(2026, 11, 15),
            "platform": "x86_64-manylinux_2_28",
            "also": ["flit_core==3.12.0"],
            "python": [{"version": "3.12"}, {"version": "3.13"}],
            "torch": [
                {"release": "2.5.1", "tier": "default"},
                {"release": "2.6.0", "tier": "extended"},
            ],
        }
        | changes
    )


MATRIX = matrix_of()
FORCED = matrix_of(
    forced=[{"torch": "2.5.1", "package": "triton", "pythons": ["3.12"], "reason": "no wheel"}]
)


def write(
    root: Path,
    cell: CellSpec,
    packages: Mapping[str, str] | None = None,
    *,
    matrix: Matrix = MATRIX,
    change: Callable[[str], str] = str,
) -> None:
    """Write a lock of these packages, each required by torch unless ``VIA`` names another one."""
    lines = [f"# Matrix digest: {matrix_digest(matrix, cell)}", ""]
    for name, version in sorted((packages or PACKAGES | {"torch": cell.torch}).items()):
        lines += [f"{name}=={version} \\", f"    {HASH}", f"    # via {VIA.get(name, 'torch')}"]
    path = lock_path(root, cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(change("\n".join(lines) + "\n"), encoding="utf-8")


def write_unavailable(root: Path, cell: CellSpec, reason: str = "no wheels") -> None:
    path = unavailable_path(root, cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# Matrix digest: {matrix_digest(MATRIX, cell)}\n\n{reason}\n", "utf-8")


def write_all(root: Path, matrix: Matrix = MATRIX) -> None:
    for cell in matrix.cells(tier="extended"):
        write(root, cell, matrix=matrix)


# --- reading


def test_a_lock_is_read_with_hashes_and_requirers() -> None:
    text = f"""# a header
torch==2.5.1 \\
    {HASH} \\
    {HASH.replace("0", "a")}
    # via matrix.toml
Typing_Extensions==4.0 \\
    {HASH}
    # via
    #   sympy
    #   torch
"""
    zero = HASH.removeprefix("--hash=")
    assert parse_lock(text) == (
        Pin("torch", "2.5.1", (zero, zero.replace("0", "a")), ("matrix.toml",)),
        Pin("typing-extensions", "4.0", (zero,), ("sympy", "torch")),
    )


@pytest.mark.parametrize(
    "line", ["torch>=2", "--index-url https://x", "-r other.txt", "torch @ file:///x", f"{HASH}"]
)
def test_a_line_not_written_by_uv_is_named(tmp_path: Path, line: str) -> None:
    write(tmp_path, OLD, change=lambda text: text + line + "\n")
    with pytest.raises(LockError, match=r"py3\.12-torch2\.5\.1\.txt: line 15 is not as uv"):
        lock_state(tmp_path, OLD)


def test_the_closure_has_direct_and_indirect_requirements(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    state = lock_state(tmp_path, OLD)
    assert state.closure("torch") == {"torch", "sympy", "mpmath"}
    assert state.closure("flit-core") == {"flit-core"}
    assert state.closure("numpy") == set()
    write(
        tmp_path,
        OLD,
        change=lambda text: text.replace("via sympy", "via\n    #   x\n    #   sympy"),
    )
    assert "mpmath" in lock_state(tmp_path, OLD).closure("torch")


def test_missing_locked_and_unavailable_are_distinguished(tmp_path: Path) -> None:
    missing = lock_state(tmp_path, OLD)
    assert (missing.kind, missing.sha256, missing.stale(MATRIX)) == ("missing", None, False)
    write(tmp_path, OLD)
    locked = lock_state(tmp_path, OLD)
    assert (locked.kind, locked.packages, locked.message) == ("locked", PACKAGES, "")
    write_unavailable(tmp_path, NEW)
    unavailable = lock_state(tmp_path, NEW)
    assert (unavailable.kind, unavailable.message) == ("unavailable", "no wheels")
    assert locked.sha256 != unavailable.sha256
    write_unavailable(tmp_path, OLD)
    with pytest.raises(LockError, match=r"both .* exist"):
        lock_state(tmp_path, OLD)


@pytest.mark.parametrize(
    ("changes", "stale"),
    [
        ({"exclude-newer": dt.date(2026, 11, 16)}, True),
        ({"platform": "macos"}, True),
        ({"also": ["flit_core==3.11.0"]}, True),
        ({"also": []}, True),
        ({"python": [{"version": v} for v in ("3.12", "3.13", "3.14t")]}, False),
        ({"torch": [{"release": "2.5.1", "tier": "extended"}]}, False),
    ],
)
def test_a_lock_is_stale_if_its_inputs_change(
    tmp_path: Path, changes: dict[str, Any], *, stale: bool
) -> None:
    write(tmp_path, OLD)
    assert lock_state(tmp_path, OLD).stale(matrix_of(**changes)) is stale


def test_a_stale_lock_is_replaced_only_on_request(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    assert ensure_lock(tmp_path, MATRIX, OLD).kind == "locked"
    with pytest.raises(LockError, match="made from another matrix") as caught:
        ensure_lock(tmp_path, matrix_of(also=[]), OLD)
    assert "ivhl lock --torch 2.5.1" in caught.value.hint


# --- mistakes


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("# via torch", "# via torch\n# --index-url https://host/simple", "hold no address (got "),
        ("# via torch", "# via torch\n# made in /home/someone/x", "hold no path (got '/home/"),
        ("# via torch", "# via torch\n# made in ~/x", "hold no path (got '~/x')"),
        ("# via torch", "# via numpy", "sympy: no package in the lock requires it (got numpy)"),
        (f"    {HASH}\n", "", "flit-core: must have a hash"),
        ("torch==2.5.1", "torch==2.5.0", "torch: must be 2.5.1 (got 2.5.0)"),
        ("torch==2.5.1", "torch==2.5.1+cpu", "a local version is not on every mirror"),
        ("flit-core==3.12.0", "flit-core==3.11.0", "must ask for flit-core==3.12.0, torch==2.5.1"),
        ("Matrix digest: ", "Digest: ", "is stale, made from another matrix.toml (digest missing"),
    ],
)
def test_every_problem_of_a_lock_is_named(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    write(tmp_path, OLD)
    assert lock_mistakes(lock_state(tmp_path, OLD), MATRIX) == []
    write(tmp_path, OLD, change=lambda text: text.replace(old, new, 1))
    found = lock_mistakes(lock_state(tmp_path, OLD), MATRIX)
    assert expected in "\n".join(found)
    assert all(line.startswith("py3.12-torch2.5.1.txt: ") for line in found)


def test_check_returns_all_problems(tmp_path: Path) -> None:
    write_all(tmp_path)
    assert check_locks(tmp_path, MATRIX) == []
    lock_path(tmp_path, NEW).unlink()
    write(tmp_path, OLD, change=lambda text: "nonsense\n" + text)
    write(tmp_path, LATER, change=lambda text: text.replace("sympy==1.13.1", "sympy==1.14"))
    first, second, third = check_locks(tmp_path, MATRIX)
    assert first == "py3.12-torch2.5.1.txt: line 1 is not as uv writes it (got 'nonsense')"
    assert second == "py3.13-torch2.5.1.txt: is missing"
    assert third == (
        "py3.12-torch2.6.0 and py3.13-torch2.6.0 are not matched: sympy is 1.14 in "
        "py3.12-torch2.6.0 but 1.13.1 in py3.13-torch2.6.0, "
        "without a [[forced]] row in matrix.toml"
    )


def test_an_unavailable_cell_with_a_reason_is_valid(tmp_path: Path) -> None:
    write_all(tmp_path)
    lock_path(tmp_path, NEW).unlink()
    write_unavailable(tmp_path, NEW)
    assert check_locks(tmp_path, MATRIX) == []
    write_unavailable(tmp_path, NEW, reason="")
    assert check_locks(tmp_path, MATRIX) == ["py3.13-torch2.5.1.unavailable.txt: has no reason"]


@pytest.mark.parametrize("who", [(), (OLD, NEW), (NEW,)], ids=["none", "all", "the-other"])
def test_a_forced_difference_that_no_longer_exists_is_a_problem(
    tmp_path: Path, who: tuple[CellSpec, ...]
) -> None:
    write_all(tmp_path, FORCED)
    for cell in who:
        write(tmp_path, cell, PACKAGES | {"triton": "3.1.0"}, matrix=FORCED)
    assert "forced.0: no longer holds: triton" in check_locks(tmp_path, FORCED)[-1]
    write_all(tmp_path, FORCED)
    write(tmp_path, OLD, PACKAGES | {"triton": "3.1.0"}, matrix=FORCED)
    assert check_locks(tmp_path, FORCED) == []


def test_a_forced_difference_between_no_two_pythons_is_a_problem(tmp_path: Path) -> None:
    row = FORCED.forced[0].model_dump() | {"pythons": ["3.12", "3.13"]}
    write_all(tmp_path)
    for cell in (OLD, NEW):
        write(tmp_path, cell, PACKAGES | {"triton": "3.1.0"})
    (problem,) = check_locks(tmp_path, matrix_of(forced=[row]))
    assert problem == (
        "matrix.toml: forced.0: no longer holds: triton of torch 2.5.1 is in the locks for "
        "Python 3.12, 3.13 (got 3.12, 3.13)"
    )


# --- matched


def test_between_pythons_only_a_forced_package_may_be_missing(tmp_path: Path) -> None:
    write(tmp_path, OLD, PACKAGES | {"triton": "3.1.0"})
    write(tmp_path, NEW)
    plain = diff_cells(tmp_path, MATRIX, OLD, NEW)
    assert (plain.axis, plain.matched, plain.removed) == ("python", False, {"triton": "3.1.0"})
    excused = diff_cells(tmp_path, FORCED, OLD, NEW)
    assert (excused.matched, excused.forced) == (True, {"triton": "no wheel"})
    turned = diff_cells(tmp_path, FORCED, NEW, OLD)
    assert (turned.matched, turned.added) == (True, {"triton": "3.1.0"})


def test_a_forced_package_may_be_missing_only_where_the_matrix_says(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    write(tmp_path, NEW, PACKAGES | {"triton": "3.1.0"})
    assert not diff_cells(tmp_path, FORCED, OLD, NEW).matched


@pytest.mark.parametrize("pythons", [["3.12", "3.13"], ["3.14t"], ["3.13"]])
def test_an_exception_for_other_pythons_does_not_apply(tmp_path: Path, pythons: list[str]) -> None:
    row = FORCED.forced[0].model_dump() | {"pythons": pythons}
    write(tmp_path, OLD, PACKAGES | {"triton": "3.1.0"})
    write(tmp_path, NEW)
    rows = [{"version": python} for python in ("3.12", "3.13", "3.14t")]
    matrix = matrix_of(forced=[row], python=rows)
    assert not diff_cells(tmp_path, matrix, OLD, NEW).matched


def test_between_pythons_no_version_may_differ(tmp_path: Path) -> None:
    write(tmp_path, OLD, PACKAGES | {"triton": "3.1.0"})
    write(tmp_path, NEW, PACKAGES | {"triton": "3.2.0"})
    found = diff_cells(tmp_path, FORCED, OLD, NEW)
    assert found.changed == {"triton": ("3.1.0", "3.2.0")}
    assert found.reasons == (
        (
            "triton is 3.1.0 in py3.12-torch2.5.1 but 3.2.0 in py3.13-torch2.5.1, "
            "without a [[forced]] row in matrix.toml"
        ),
    )


def test_between_releases_the_closure_of_torch_may_differ(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    write(tmp_path, LATER, {"torch": "2.6.0", "sympy": "1.14", "flit-core": "3.12.0", "cuda": "1"})
    found = diff_cells(tmp_path, MATRIX, OLD, LATER)
    assert (found.axis, found.matched) == ("torch", True)
    assert found.forced == {
        "cuda": "required by torch 2.6.0",
        "mpmath": "required by sympy 1.13.1",
        "sympy": "required by torch 2.5.1, torch 2.6.0",
        "torch": "the release itself",
    }


def test_between_releases_nothing_else_may_differ(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    write(tmp_path, LATER, PACKAGES | {"torch": "2.6.0", "flit-core": "3.11.0"})
    found = diff_cells(tmp_path, MATRIX, OLD, LATER)
    assert found.reasons == (
        (
            "flit-core is 3.12.0 in py3.12-torch2.5.1 but 3.11.0 in py3.12-torch2.6.0, "
            "which torch does not require"
        ),
    )


def test_cells_that_differ_in_both_axes_are_not_matched(tmp_path: Path) -> None:
    write_all(tmp_path)
    found = diff_cells(tmp_path, MATRIX, NEW, LATER)
    assert (found.axis, found.matched) == ("both", False)
    assert found.reasons == ("both axes differ: Python 3.13 and 3.12, torch 2.5.1 and 2.6.0",)


def test_equal_versions_with_other_files_are_not_matched(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    write(tmp_path, NEW, change=lambda text: text.replace("0" * 64, "1" * 64, 1))
    assert diff_cells(tmp_path, MATRIX, OLD, NEW).reasons == (
        "flit-core 3.12.0 has no hash in common in the two locks",
    )


def test_a_cell_without_a_fresh_lock_is_not_matched(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    assert "has no lock" in diff_cells(tmp_path, MATRIX, OLD, NEW).reasons[0]
    write_unavailable(tmp_path, NEW)
    assert diff_cells(tmp_path, MATRIX, OLD, NEW).reasons == (
        "py3.13-torch2.5.1 is unavailable: no wheels",
    )
    stale = diff_cells(tmp_path, matrix_of(also=[]), OLD, OLD).reasons
    assert "is stale" in stale[0]
    assert diff_cells(tmp_path, MATRIX, OLD, OLD).matched


# --- making, without a registry


def says(monkeypatch: pytest.MonkeyPatch, answer: Callable[[str, Mapping[str, str]], str]) -> None:
    """Replace the resolver; it chooses a version of sympy from the Python and the seed."""

    def compile_(
        root: Path,
        matrix: Matrix,
        python: str,
        requirements: Sequence[str],
        seed: Mapping[str, str],
        *options: str,
        binary: bool = True,
    ) -> tuple[str, str]:
        del root, matrix, options, binary
        packages = [*requirements, f"sympy=={answer(python, seed)}"]
        asked = {"sympy": "torch"}
        return "", "".join(
            f"{p.replace('_', '-')} \\\n    {HASH}\n    # via "
            f"{asked.get(p.split('==')[0], '-r requirements.in')}\n"
            for p in packages
        )

    monkeypatch.setattr(locks, "resolve_requirements", compile_)


def test_later_pythons_get_the_versions_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = {"3.12": "1.13", "3.13": "1.14"}
    says(monkeypatch, lambda python, seed: seed.get("sympy", newest[python]))
    states = lock_release(tmp_path, MATRIX, "2.5.1")
    assert [state.packages["sympy"] for state in states] == ["1.13", "1.13"]
    assert check_locks(tmp_path, matrix_of(torch=[{"release": "2.5.1", "tier": "default"}])) == []


def test_the_first_python_gets_the_versions_of_a_later_one_if_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(python: str, seed: Mapping[str, str]) -> str:
        return "1.12" if python == "3.13" else seed.get("sympy", "1.14")

    says(monkeypatch, answer)
    states = lock_release(tmp_path, MATRIX, "2.5.1")
    assert [state.packages["sympy"] for state in states] == ["1.12", "1.12"]


def test_an_unavoidable_difference_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(monkeypatch, lambda python, _: {"3.12": "1.13", "3.13": "1.14"}[python])
    lock_release(tmp_path, MATRIX, "2.5.1")
    assert diff_cells(tmp_path, MATRIX, OLD, NEW).changed == {"sympy": ("1.13", "1.14")}


def test_one_cell_gets_the_versions_of_the_other_pythons_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(monkeypatch, lambda _, seed: seed.get("sympy", "1.99"))
    write(tmp_path, NEW, matrix=matrix_of(also=[]))  # stale, so it is ignored
    assert make_lock(tmp_path, MATRIX, OLD).packages["sympy"] == "1.99"
    write(tmp_path, NEW)
    assert make_lock(tmp_path, MATRIX, OLD).packages["sympy"] == "1.13.1"


def test_a_missing_free_threaded_python_cannot_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(root: Path, python: str) -> None:
        raise InterpreterError(f"no {python} in {root}")

    monkeypatch.setattr(locks, "find_free_threaded", nowhere)
    matrix = matrix_of(python=[{"version": "3.14t"}])
    with pytest.raises(InterpreterError, match=r"no 3\.14t"):
        make_lock(tmp_path, matrix, CellSpec("3.14t", "2.15.0"))


# --- the real uv


def test_real_uv_without_a_registry_records_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(LockError, match=r"uv gives no answer: .*Connection refused") as no:
        make_lock(tmp_path, MATRIX, OLD)
    assert "nothing was recorded" in no.value.hint
    assert lock_state(tmp_path, OLD).kind == "missing"


def test_real_uv_that_is_offline_records_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(LockError, match=r"uv gives no answer: .*network was disabled"):
        make_lock(tmp_path, MATRIX, OLD)
    assert lock_state(tmp_path, OLD).kind == "missing"


def test_real_uv_on_an_unknown_platform_records_nothing(tmp_path: Path) -> None:
    with pytest.raises(LockError, match=r"uv gives no answer: .*'atari'") as caught:
        make_lock(tmp_path, matrix_of(platform="atari"), OLD)
    assert "`platform`" in caught.value.hint
    assert lock_state(tmp_path, OLD).kind == "missing"


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip without access to a package registry."""
    folder = tmp_path_factory.mktemp("registry")
    (folder / "requirements.in").write_text("flit_core==3.12.0\n", encoding="utf-8")
    asked = run_uv(["pip", "compile", "requirements.in", "--python", sys.executable], cwd=folder)
    if asked.returncode and os.environ.get("CI"):
        pytest.fail(f"no package registry: {asked.stderr}")
    if asked.returncode:
        pytest.skip(f"no package registry: {asked.stderr.splitlines()[0]}")


@pytest.mark.usefixtures("registry")
def test_real_uv_reports_a_missing_release(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown PyTorch release '2\.5\.7'") as caught:
        make_lock(tmp_path, MATRIX, CellSpec("3.12", "2.5.7"))
    assert caught.value.hint == "did you mean 2.5.1 or 2.6.0?"
    assert lock_state(tmp_path, CellSpec("3.12", "2.5.7")).kind == "missing"
    with pytest.raises(UnknownNameError, match=r"unknown PyTorch release '9\.9\.9'") as caught:
        make_lock(tmp_path, MATRIX, CellSpec("3.12", "9.9.9"))
    # Spelling alone would ask whether 2.9.1 was meant.
    assert caught.value.hint == f"known: {MATRIX.releases('extended')[-1]}"


@pytest.mark.usefixtures("registry")
def test_real_uv_reports_a_missing_wheel_for_this_python(tmp_path: Path) -> None:
    cell = CellSpec("3.13", "2.4.1")
    write(tmp_path, cell)  # the earlier statement must be deleted
    state = make_lock(tmp_path, MATRIX, cell)
    assert (state.kind, state.path) == ("unavailable", unavailable_path(tmp_path, cell))
    assert state.message.startswith("Because torch==2.4.1 has no wheels with a matching Python")
    assert lock_mistakes(state, MATRIX) == []


@pytest.mark.usefixtures("registry")
def test_real_uv_reports_a_missing_wheel_for_this_platform(tmp_path: Path) -> None:
    state = make_lock(tmp_path, matrix_of(platform="riscv64-unknown-linux"), LATER)
    assert state.kind == "unavailable"
    assert "no wheels with a matching platform tag" in state.message


@pytest.mark.usefixtures("registry")
def test_real_uv_reports_a_release_newer_than_the_matrix(tmp_path: Path) -> None:
    matrix = matrix_of(**{"exclude-newer": dt.date(2024, 11, 1)})
    with pytest.raises(SpecError, match=r"must not be newer than .* 2024-11-01 \(got '2\.6\.0'\)"):
        make_lock(tmp_path, matrix, LATER)


@pytest.mark.usefixtures("registry")
def test_real_uv_includes_the_last_day(tmp_path: Path) -> None:
    """2.6.0 was published on 2025-01-29, in the afternoon."""
    for day, works in ((28, False), (29, True)):
        matrix = matrix_of(**{"exclude-newer": dt.date(2025, 1, day), "also": []})
        if works:
            assert make_lock(tmp_path, matrix, LATER).kind == "locked"
        else:
            with pytest.raises(SpecError, match="published at 2025-01-29"):
                make_lock(tmp_path, matrix, LATER)


@pytest.mark.usefixtures("registry")
def test_real_uv_reports_a_missing_additional_package(tmp_path: Path) -> None:
    with pytest.raises(LockError, match=r"cannot be resolved: .*no version of flit-core==99"):
        make_lock(tmp_path, matrix_of(also=["flit_core==99"]), OLD)
    assert lock_state(tmp_path, OLD).kind == "missing"


@pytest.mark.usefixtures("registry")
def test_real_uv_makes_a_lock_with_the_versions_of_another_python(tmp_path: Path) -> None:
    """The seed is used as well: without it, uv would not choose filelock 3.16.0."""
    write(tmp_path, OLD, PACKAGES | {"filelock": "3.16.0"})
    state = ensure_lock(tmp_path, MATRIX, NEW)
    assert lock_mistakes(state, MATRIX) == []
    assert state.packages["filelock"] == "3.16.0"
    assert "triton" not in state.packages
    assert "sympy" in state.closure("torch")
    assert "-r" not in state.path.read_text(encoding="utf-8").split()


# --- what the project requires


def test_a_requirement_is_pinned_by_the_lock_and_not_by_the_matrix(tmp_path: Path) -> None:
    matrix = matrix_of(requires=["einops>=0.8", "tomli; python_version < '3.11'"])
    packages = PACKAGES | {"einops": "0.8.2"}

    def ask(version: str) -> list[str]:
        write(
            tmp_path,
            OLD,
            packages | {"einops": version},
            matrix=matrix,
            change=lambda text: re.sub(r"(einops==(?:.*\n){2}.*via ).*", r"\1matrix.toml", text),
        )
        return lock_mistakes(lock_state(tmp_path, OLD), matrix)

    assert ask("0.8.2") == []
    assert "must ask for einops>=0.8, flit-core==3.12.0, torch==2.5.1" in ask("0.7.0")[0]


def test_locks_from_before_there_were_requirements_stay_fresh() -> None:
    assert matrix_digest(matrix_of(requires=[]), OLD) == matrix_digest(MATRIX, OLD)
    assert matrix_digest(matrix_of(requires=["einops"]), OLD) != matrix_digest(MATRIX, OLD)


def test_between_releases_what_requires_torch_may_differ(tmp_path: Path) -> None:
    """As torchvision, of which one version fits one release of torch."""
    vision = re.compile(r"(torch==2.*\n.*\n    # via )matrix.toml")
    for cell, version in ((OLD, "0.20.1"), (LATER, "0.21.0")):
        write(
            tmp_path,
            cell,
            PACKAGES | {"torch": cell.torch, "torchvision": version},
            change=lambda text: vision.sub(r"\1torchvision", text),
        )
    assert diff_cells(tmp_path, MATRIX, OLD, LATER).matched


@pytest.mark.usefixtures("registry")
def test_real_uv_a_dependency_that_cannot_be_had_is_named_and_pytorch_is_not(
    tmp_path: Path,
) -> None:
    matrix = matrix_of(requires=["einops", "scipy<1.11"])
    state = make_lock(tmp_path, matrix, LATER)
    assert (state.kind, state.because) == ("unavailable", "scipy<1.11")
    assert state.message.startswith("the project requires scipy<1.11, which this cell cannot have")
    assert lock_mistakes(state, matrix) == []


@pytest.mark.usefixtures("registry")
def test_real_uv_a_release_without_a_wheel_is_not_blamed_on_a_dependency(tmp_path: Path) -> None:
    state = make_lock(tmp_path, matrix_of(requires=["scipy<1.11"]), CellSpec("3.13", "2.4.1"))
    assert (state.kind, state.because) == ("unavailable", "")
    assert state.message.startswith("Because torch==2.4.1 has no wheels")


@pytest.mark.usefixtures("registry")
def test_real_uv_a_dependency_that_does_not_exist_records_nothing(tmp_path: Path) -> None:
    with pytest.raises(LockError, match="no answer for no-such-package-of-ivhl"):
        make_lock(tmp_path, matrix_of(requires=["no-such-package-of-ivhl"]), LATER)
    assert lock_state(tmp_path, LATER).kind == "missing"
