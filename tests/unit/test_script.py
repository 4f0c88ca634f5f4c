"""Outcomes of a script, what it needs, and which cells are run: laws, without an environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import time
import venv
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ivhl.cli import app
from ivhl.cli.run import _show, cells_of, expected_of, outcome_text, sentences
from ivhl.errors import SpecError
from ivhl.matrix.locks import lock_state
from ivhl.matrix.project import MATRIX
from ivhl.matrix.spec import CellSpec, load_matrix
from ivhl.script import observer, requirements
from ivhl.script.cells import (
    LIMIT_VARIABLE,
    MARK,
    SHIPPED,
    cells_folder,
    make_room,
    observe_cells,
    shipped_matrix,
)
from ivhl.script.matrix import ScriptRuns, Wanted
from ivhl.script.outcome import ScriptOutcome, are_alike, noisy_numbers, not_run
from ivhl.script.overlay import UnavailableError
from ivhl.script.requirements import Needs, needs_of
from ivhl.script.running import Script
from ivhl.script.symptom import OFF, ScriptBlame, Symptom, blame_script
from studies.house import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

GOOD = ScriptOutcome(ending="exit 0", output="loss 0.125 of 10\n")
DISABLED = {"module": "torch._dynamo.config", "field": "disable", "value": True}
LACKING = {"module": "torch._dynamo.config", "field": "none.such", "value": 1}
CELLS = tuple(CellSpec("3.12", f"2.{minor}.0") for minor in range(13))


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("blame {} --threads 4", "--threads 4"),
        ("blame {} --commit HEAD~1 --force", "--commit HEAD~1 --force"),
        ("blame {} --for wrong --device cuda", "--for wrong --device cuda"),
        ("try --input 8,64", "--input"),
        ("try ops.one --json", "--json"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(
    tmp_path: Path, command: str, named: str
) -> None:
    (tmp_path / "script.py").write_text("print(1)\n")
    words = command.format(tmp_path / "script.py").split()
    refused = CliRunner().invoke(app, words).exception
    assert isinstance(refused, SpecError)
    assert named in str(refused)


def test_a_release_without_a_lock_is_refused_with_the_nearest() -> None:
    with pytest.raises(SpecError, match=r"unknown PyTorch release '2\.15\.7'") as refused:
        cells_of(shipped_matrix(), ["2.15.7"], [])
    assert "2.15.0" in refused.value.hint


def test_every_lock_of_the_matrix_ships_with_the_package() -> None:
    ours = {path.name: path.read_bytes() for path in (ROOT / "envs" / "locks").iterdir()}
    shipped = {path.name: path.read_bytes() for path in (SHIPPED / "envs" / "locks").iterdir()}
    assert shipped == ours
    assert shipped_matrix() == load_matrix(ROOT / MATRIX)
    assert lock_state(SHIPPED, CellSpec("3.12", "2.6.0")).kind == "locked"


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (GOOD, True),
        (replace(GOOD, output="loss 0.12500001 of 10\n"), True),
        (replace(GOOD, output="loss 0.126 of 10\n"), False),
        (replace(GOOD, output="loss nan of 10\n"), False),
        (replace(GOOD, output="loss 0.125 of 11\n"), False),
        (replace(GOOD, output="loss 0.125 of 0xdeadbeef\n"), False),
        (replace(GOOD, left_out="ab"), False),
        (replace(GOOD, ending="exit 1"), False),
        (replace(GOOD, ending="SIGSEGV"), False),
        (replace(GOOD, seconds=9.0, recompiles=3), True),
        (replace(GOOD, output="\x1b[31mloss\x1b[0m 0.125 of 10\n"), True),
        (replace(GOOD, output="loss    0.125 of\t10   \n"), True),
        (replace(GOOD, output="loss # of 10\n"), False),
    ],
)
def test_outcomes_are_alike_if_a_reader_would_say_so(other: ScriptOutcome, alike: bool) -> None:  # noqa: FBT001
    assert are_alike(GOOD, other) is alike


def test_a_process_that_corrupts_its_memory_crashes_anywhere() -> None:
    early, late = replace(GOOD, ending="SIGSEGV", output=""), replace(GOOD, ending="SIGABRT")
    assert are_alike(early, late)
    assert noisy_numbers(early, late) == frozenset()
    assert not are_alike(early, replace(early, ending="SIGKILL"))


def test_exceptions_of_the_compiler_are_compared_by_class_and_others_by_message() -> None:
    old = ScriptOutcome(
        ending="exit 1", exception="torch._dynamo.exc.BackendCompilerFailed", message="a"
    )
    new = ScriptOutcome(
        ending="exit 1", exception="torch._inductor.exc.InductorError", message="b"
    )
    assert are_alike(old, new)
    assert not are_alike(old, replace(new, exception="torch._dynamo.exc.Unsupported"))
    own = ScriptOutcome(ending="exit 1", exception="AssertionError", message="wrong by 3")
    assert not are_alike(own, replace(own, message="wrong by 4"))
    assert not are_alike(own, replace(own, message="wrong by 3\nmore"))


def test_the_release_itself_is_no_difference() -> None:
    one = replace(GOOD, output="torch 2.6.0+cu124 in /a/b/c.py")
    other = replace(GOOD, output="torch 2.15.0 in /d/c.py")
    assert are_alike(one, other, (), ("2.6.0", "2.15.0"))
    assert not are_alike(one, other)
    # Also where the name of a release is a constant of the script.
    assert are_alike(one, replace(one, output="torch 2.6.0 in c.py"), (), ("2.6.0", "2.15.0"))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=5), st.text())
def test_an_outcome_is_like_itself_and_its_noise_is_symmetric(
    values: list[float], text: str
) -> None:
    one = replace(GOOD, output=text.join(map(repr, values)))
    other = replace(GOOD, output=text.join(repr(v * 1.5) for v in values))
    assert are_alike(one, one)
    assert are_alike(one, other) == are_alike(other, one)
    assert noisy_numbers(one, other) == noisy_numbers(other, one)


UNITS = st.sampled_from(["s", "ms", "µs", "x", "GB", "GB/s", "it/s", "%", "j", " s"])
COLUMNS_OF = st.sampled_from(["{:.4f}{}", "{:9.3f}{}", "{:<9.3f}{}|", "({:+9.3f}{})", "{:.3e}{}"])


@given(st.lists(st.floats(0.01, 9e4), min_size=2, max_size=2), UNITS, COLUMNS_OF)
def test_a_number_varies_with_a_unit_and_in_a_column_as_without(
    values: list[float], unit: str, column: str
) -> None:
    texts = [f"took {column.format(value, unit)} of 3" for value in values]
    one, other = (replace(GOOD, output=text) for text in texts)
    assert not one.again(other).flaky
    assert are_alike(one, other, noisy_numbers(one, other))
    by = abs(values[0] - values[1]) / max(values)
    if by > 3e-3:  # what is printed has three figures or more
        assert not are_alike(one, other)
    assert not are_alike(one, replace(one, output=f"took {column.format(values[0], 'ps')} of 3"))


@given(
    st.complex_numbers(max_magnitude=1e3, allow_nan=False),
    st.complex_numbers(max_magnitude=1e3, allow_nan=False),
)
def test_complex_numbers_are_two_numbers(one: complex, step: complex) -> None:
    def printed(value: complex) -> ScriptOutcome:
        return replace(GOOD, output=f"tensor([{value:.8f}, 1.0000-0.0000j])")

    near = complex(one.real * (1 + 1e-4), one.imag * (1 - 1e-4) + 1e-8)
    assert are_alike(printed(one), printed(near))
    parts = [(one.real, step.real), (one.imag, step.imag)]
    if any(abs(a - b) > max(1e-5, 2e-3 * abs(a), 2e-3 * abs(b)) for a, b in parts):
        assert not are_alike(printed(one), printed(step))


WORDS = st.one_of(
    st.text("0123456789abcdef", min_size=7, max_size=12).filter(lambda text: not text.isdigit()),
    st.from_regex("[0-9]{1,6}[a-f]{1,6}", fullmatch=True),
    st.integers(1, 1 << 64).map(hex),
    st.builds(
        "{}.{}.{}{}".format, *[st.integers(0, 99)] * 3, st.sampled_from(["", "rc1", "+cpu"])
    ),
    st.builds(
        "{}{}".format, st.sampled_from(["v", "float", "sm_", "x", "gpt2-v"]), st.integers(0)
    ),
    st.builds("{}x{}".format, st.integers(0), st.integers(0)),
    st.builds("{}.{}".format, st.integers(0), st.sampled_from(["cpp", "pt", "so.1"])),
)


@given(WORDS, WORDS)
@example("12ab", "13ab")
@example("12345678e1", "12345679e1")
def test_hashes_addresses_versions_and_shapes_are_words(one: str, other: str) -> None:
    a, b = (replace(GOOD, output=f"made {text} 0.5") for text in (one, other))
    assert are_alike(a, b) == (one == other)
    assert a.again(b).flaky == (one != other)


def test_a_word_of_a_million_characters_is_compared_at_once() -> None:
    long = 1_000_000
    for word in ("1" * long + "a", "1" + "z" * long, "1-" * (long // 2), "1." * (long // 2)):
        began = time.process_time()
        assert are_alike(replace(GOOD, output=word), replace(GOOD, output=word))
        assert time.process_time() - began < 20  # quadratic: an hour


def _runs(
    monkeypatch: pytest.MonkeyPatch,
    outcome_of: Callable[[CellSpec, int], ScriptOutcome],
    expected: Wanted | None = None,
    missing: tuple[CellSpec, ...] = (),
) -> tuple[ScriptRuns, list[CellSpec]]:
    """Return runs whose cells are no environments but names, and the list of what was run."""
    ran: list[CellSpec] = []
    by_name = {cell.id: cell for cell in CELLS}

    class InUse:
        def __init__(self, cell: CellSpec, _: object) -> None:
            if cell in missing:
                raise UnavailableError("no wheel")
            self.cell = cell

        def __enter__(self) -> str:
            return self.cell.id

        def __exit__(self, *_: object) -> None:
            return None

    class Planted:
        def run_in(self, name: str) -> ScriptOutcome:
            ran.append(by_name[name])
            return outcome_of(by_name[name], ran.count(by_name[name]))

    monkeypatch.setattr(requirements, "cell_in_use", InUse)
    script: Any = Planted()
    return ScriptRuns(script, Needs(), expected, lambda *_: None), ran


@given(st.integers(1, len(CELLS) - 1))
def test_the_search_finds_the_boundary_in_the_fewest_runs(at: int) -> None:
    bad = replace(GOOD, ending="exit 1")
    with pytest.MonkeyPatch.context() as patch:
        runs, ran = _runs(patch, lambda cell, _: GOOD if CELLS.index(cell) < at else bad)
        runs.search(CELLS)
    assert runs.boundaries() == [(CELLS[at - 1], CELLS[at])]
    assert len(ran) <= 2 + 4  # both ends, and log2 of the eleven between them


def test_the_search_passes_over_cells_that_cannot_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = replace(GOOD, ending="exit 1")
    missing = (CELLS[0], CELLS[5], CELLS[6], CELLS[12])
    runs, ran = _runs(
        monkeypatch, lambda cell, _: GOOD if CELLS.index(cell) < 7 else bad, missing=missing
    )
    runs.search(CELLS)
    assert runs.boundaries() == [(CELLS[4], CELLS[7])]
    assert not set(ran) & set(missing)


def test_a_search_between_like_ends_runs_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, ran = _runs(monkeypatch, lambda *_: GOOD)
    runs.search(CELLS)
    assert ran == [CELLS[0], CELLS[-1]]
    assert runs.boundaries() == []


def test_the_search_passes_over_releases_that_refuse_this_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused, bad = replace(GOOD, ending="exit 1"), replace(GOOD, ending="SIGSEGV")
    outcomes = [refused] + [bad] * 9 + [GOOD] * (len(CELLS) - 10)
    runs, ran = _runs(monkeypatch, lambda cell, _: outcomes[CELLS.index(cell)])
    runs.search(CELLS)
    assert runs.boundaries()[-1] == (CELLS[9], CELLS[10])
    assert len(ran) <= 2 + 4
    # The other boundary lies somewhere between two cells that were run.
    first, second = runs.boundaries()[0]
    left_out = runs.not_run(first, second)
    assert left_out == list(CELLS[1 : CELLS.index(second)]) != []
    (sentence, _) = sentences(runs)
    assert f"differ ({', '.join(cell.torch for cell in left_out)} not run): " in sentence


@given(st.integers(1, len(CELLS) - 1))
def test_the_search_does_not_take_a_duration_for_a_difference(at: int) -> None:
    def timed(cell: CellSpec, count: int) -> ScriptOutcome:
        loss = 1.5 if CELLS.index(cell) < at else 2.5
        return replace(GOOD, output=f"took {3.7 * count + CELLS.index(cell)} s, loss {loss}")

    with pytest.MonkeyPatch.context() as patch:
        runs, ran = _runs(patch, timed)
        runs.search(CELLS)
    assert runs.boundaries() == [(CELLS[at - 1], CELLS[at])]
    assert len(ran) <= 2 + 4 + 1  # the last cell twice


def test_a_number_that_varies_in_one_cell_is_no_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def timed(cell: CellSpec, count: int) -> ScriptOutcome:
        return replace(GOOD, output=f"took {CELLS.index(cell) + 3.7 * count} s, loss 1.5")

    runs, ran = _runs(monkeypatch, timed)
    runs.run(CELLS[:4])
    assert len(runs.boundaries()) == 3
    runs.settle()
    assert runs.boundaries() == []
    assert max(ran.count(cell) for cell in CELLS) == 2


def test_noise_of_one_text_hides_nothing_in_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def texts(cell: CellSpec, count: int) -> ScriptOutcome:
        noisy = CELLS.index(cell) == 2
        text = f"t {count / 3} x 9.5" if noisy else f"x {7.5 + CELLS.index(cell)} t 0.5"
        return replace(GOOD, output=text)

    runs, _ = _runs(monkeypatch, texts)
    runs.run(CELLS[:3])
    runs.settle()
    assert runs.boundaries() == [(CELLS[0], CELLS[1]), (CELLS[1], CELLS[2])]


def test_a_script_that_ends_otherwise_in_the_same_cell_is_flaky(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def flaky(cell: CellSpec, count: int) -> ScriptOutcome:
        return replace(GOOD, ending=f"exit {(CELLS.index(cell) == 1) ^ (count == 2)}")

    runs, _ = _runs(monkeypatch, flaky)
    runs.run(CELLS[:2])
    runs.settle()
    assert all(outcome.flaky for outcome in runs.outcomes.values())
    assert runs.boundaries() == []


def test_what_is_expected_decides_in_place_of_the_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = expected_of(["0", "loss"])
    runs, _ = _runs(
        monkeypatch, lambda cell, _: replace(GOOD, output=f"loss {cell.torch}"), expected
    )
    runs.run(CELLS)
    assert runs.boundaries() == []
    assert not any(map(runs.is_unexpected, CELLS))
    assert expected_of(["SIGINT"]) == Wanted(ending="SIGINT")
    assert expected_of(["255", "256", "-1"]) == Wanted(ending="exit 255", lines=("256", "-1"))
    with pytest.raises(SpecError, match="two exit statuses"):
        expected_of(["0", "1"])
    with pytest.raises(SpecError, match="must not be empty"):
        expected_of(["0", ""])


def test_a_reason_that_stands_in_the_table_alone_is_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "pinned out: the script needs torch<2.1, says Häßlich"
    outcomes = {0: not_run(why), 1: replace(GOOD, exception="ValueError", message="x" * 150)}
    runs, _ = _runs(monkeypatch, lambda cell, _: outcomes[CELLS.index(cell)])
    runs.run(CELLS[:2])
    for columns in ("40", "80", "300"):
        monkeypatch.setenv("COLUMNS", columns)
        _show(runs, as_json=False)
        told = capsys.readouterr().out
        assert max(map(len, told.partition("\n\n")[0].splitlines())) <= int(columns)
        column = told.splitlines()[0].index("out")
        lines = told.splitlines()[1:] if columns != "40" else []
        cells = "".join(line[column:].partition("  ")[0] for line in lines[:6])
        assert why.replace(" ", "") in cells.replace(" ", "") or not lines
        assert "x" * 150 in told  # below the table


def test_a_failure_is_shown_by_what_went_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    above = "CppCompileError: C++ compile error\n\nCommand:\ng++ a.cpp -O3\n\nOutput:\n"
    code = replace(
        GOOD,
        ending="exit 1",
        exception="torch._inductor.exc.InductorError",
        message=f"{above}a.cpp:9:7: error: 'tmp13' was not declared\na.cpp:9:8: error: b\n",
    )
    warning = "/a/b.py:3: UserWarning: Failed to initialize NumPy\n  cpu = f()\n"
    crash = replace(GOOD, ending="SIGSEGV", errors=f"{warning}bad index\n")
    assert outcome_text(replace(code, ending="SIGABRT")).startswith("SIGABRT, CppCompileError: ")
    assert outcome_text(code) == "CppCompileError: 'tmp13' was not declared"
    runs, _ = _runs(monkeypatch, lambda cell, _: crash if cell == CELLS[0] else code)
    runs.run(CELLS[:2])
    _show(runs, as_json=False)
    assert "\nA prints on standard error:\n  bad index\n" in capsys.readouterr().out


def test_a_difference_is_told_by_a_line_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ("eager 20.0\ncompiled 0.0\ndone\n", "eager 20.0\ncompiled 20.0\ndone\n")
    runs, _ = _runs(monkeypatch, lambda cell, _: replace(GOOD, output=texts[CELLS.index(cell)]))
    runs.run(CELLS[:2])
    (sentence,) = sentences(runs)
    assert sentence.endswith("exit 0, prints compiled 0.0 | exit 0, prints compiled 20.0")


def test_what_a_script_needs_is_in_its_block_and_in_the_command(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""\
        # /// script
        # requires-python = ">=3.13"
        # dependencies = ["torch<2.9", "einops"]
        # ///
        """)
    )
    needs = needs_of(script, ["timm>=1"])
    assert needs.others == ("einops", "timm>=1")
    assert "Python >=3.13" in needs.forbids(CellSpec("3.12", "2.6.0"))
    assert "torch<2.9" in needs.forbids(CellSpec("3.14", "2.9.1"))
    assert needs.forbids(CellSpec("3.14t", "2.6.0")) == ""
    script.write_text("# /// script\n# dependencies = [\n# ///\n")
    with pytest.raises(SpecError, match="not valid TOML"):
        needs_of(script)
    script.write_text("# /// script\n# dependencies = [3]\n# ///\n")
    with pytest.raises(SpecError, match=r"script\.py: a requirement must be a string \(got 3\)"):
        needs_of(script)
    script.write_bytes(b"\xef\xbb\xbf# /// script\r\n# dependencies = ['Torch<2.9']\r\n# ///\r\n")
    assert "torch<2.9" in needs_of(script).forbids(CellSpec("3.12", "2.9.1"))
    for requirement in ("torch[x]>=2", "torch @ https://example.org/t.whl", "-r foo"):
        with pytest.raises(SpecError, match=r"^--with: "):
            needs_of(script, [requirement])
    with pytest.raises(SpecError, match="No such file"):
        needs_of(tmp_path / "missing.py")


@pytest.mark.parametrize(
    ("requirement", "allowed"),
    [
        ("torch==2.15.0+cpu", ["2.15.0"]),
        ("torch===2.15.0+cu126", ["2.15.0"]),
        ("torch==2.15.0+cpu,!=2.6.0+cu124", ["2.15.0"]),
        ("torch!=2.15.0+cpu", ["2.6.0", "2.15.0"]),
        ("torch!=2.15.0", ["2.6.0"]),
        ("torch>=2.6,<2.15", ["2.6.0"]),
    ],
)
def test_a_build_of_a_release_is_a_wish_for_the_release(
    tmp_path: Path, requirement: str, allowed: list[str]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(f'# /// script\n# dependencies = ["{requirement}"]\n# ///\n')
    needs = needs_of(script)
    assert [r for r in ("2.6.0", "2.15.0") if not needs.forbids(CellSpec("3.12", r))] == allowed


def test_releases_are_named_alone_by_range_and_by_tier() -> None:
    matrix = shipped_matrix()

    def releases(*texts: str) -> list[str]:
        return [cell.torch for cell in cells_of(matrix, texts, ["3.12"])]

    assert releases("2.6.0,2.15.0", "2.6") == ["2.6.0", "2.15.0"]
    assert releases("2.5..2.7.1") == ["2.5.1", "2.6.0", "2.7.1"]
    assert releases("2.14..") == ["2.14.1", "2.15.0"]
    assert releases("all") == list(matrix.releases("extended"))
    with pytest.raises(SpecError, match="no release is in this range"):
        releases("2.15.0..2.6.0")
    with pytest.raises(SpecError, match="no release is in this range") as nowhere:
        releases("9..8")
    assert nowhere.value.hint == "e.g. 2.2.2.."
    with pytest.raises(SpecError, match="unknown PyTorch release"):
        releases("2.3.0")
    # 3.12 has every release.
    assert {cell.python for cell in cells_of(matrix, ["all"], [])} == {"3.12"}


def _observed(tmp_path: Path, code: str, change: object = None) -> dict[str, Any] | None:
    report = tmp_path / "report.json"
    report.unlink(missing_ok=True)
    begin = f"import {observer.MODULE}; {observer.MODULE}.observe()\n"
    (tmp_path / f"{observer.MODULE}.py").write_bytes((SHIPPED / "observer.py").read_bytes())
    environment = os.environ | {
        observer.VARIABLE: str(report),
        observer.CHANGE: json.dumps(change),
        "PYTHONPATH": str(tmp_path),
    }
    subprocess.run(
        [sys.executable, "-c", begin + textwrap.dedent(code)],
        env=environment,
        capture_output=True,
        check=False,
    )
    found: dict[str, Any] | None = json.loads(report.read_text()) if report.exists() else None
    return found


def test_the_observer_sees_the_exception_and_leaves_no_trace(tmp_path: Path) -> None:
    seen = _observed(
        tmp_path, "import os; assert 'IVHL_OBSERVE' not in os.environ; raise KeyError(3)"
    )
    assert seen is not None
    assert (seen["exception"]["type"], seen["exception"]["message"]) == ("KeyError", "3")
    assert seen["graph_breaks"] == 0


def test_the_observer_sees_the_exception_whatever_hook_prints_it(tmp_path: Path) -> None:
    own = "import sys; sys.excepthook = lambda *_: sys.exit('own'); "
    seen = _observed(tmp_path, own + "raise ValueError('the loss is nan')")
    assert seen is not None
    assert (seen["exception"]["type"], seen["exception"]["message"]) == (
        "ValueError",
        "the loss is nan",
    )
    assert seen["exception"]["frames"] == [["<string>", 2, "<module>"]]
    # The script sees Python's own hook.
    seen = _observed(tmp_path, "import sys; assert sys.excepthook is sys.__excepthook__")
    assert seen is not None
    assert "exception" not in seen
    # An exception without a text costs no counts.
    no_text = "class E(Exception):\n    def __str__(self): raise self\nraise E"
    assert _observed(tmp_path, no_text) == {
        "graphs": 0,
        "graph_breaks": 0,
        "recompiles": 0,
        "captured": 0,
    }


def _ended(tmp_path: Path, code: str, deadline_s: float = 300.0) -> ScriptOutcome:
    """Return how a script ends in a cell without torch."""
    if not (tmp_path / "cell").exists():
        venv.create(tmp_path / "cell", with_pip=False)
        (packages,) = tmp_path.glob("cell/lib/python3*/site-packages")
        (packages / f"{observer.MODULE}.py").write_bytes((SHIPPED / "observer.py").read_bytes())
        (packages / f"{observer.MODULE}.pth").write_text(observer.PTH)
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(code))
    return Script(path=script, deadline_s=deadline_s, network=True).run_in(tmp_path / "cell")


def test_an_exit_status_without_an_exception_has_the_words_of_the_script(tmp_path: Path) -> None:
    loss = _ended(tmp_path, "import sys; sys.exit('wrong: the loss is nan')")
    file = _ended(tmp_path, "import sys; sys.exit('wrong: the file is missing')")
    assert (loss.ending, loss.exception, loss.message) == ("exit 1", "", "wrong: the loss is nan")
    assert outcome_text(loss) == "exit 1, wrong: the loss is nan"
    assert not are_alike(loss, file)
    assert not loss.again(loss).flaky
    assert Symptom(seen=loss, without=GOOD).of(replace(file, message="no such file")) == "other"
    assert Symptom(seen=loss, without=GOOD).of(loss) == "shows"
    # What torch logs and Python warns of is no word of the script.
    warned = "import sys, warnings; warnings.warn('old'); print('[W1129 22:43:33.7 x.cpp:9] b', "
    silent = _ended(tmp_path, warned + "file=sys.stderr); sys.exit(3)")
    assert "UserWarning" in silent.errors
    assert (silent.ending, silent.message) == ("exit 3", "")
    # Standard error says nothing of a script that ends well or by a signal.
    printed = "import os, sys; print('late', file=sys.stderr, flush=True); "
    assert _ended(tmp_path, printed).message == ""
    assert _ended(tmp_path, printed + "os.kill(os.getpid(), 9)").message == ""


def test_what_a_script_does_until_its_time_limit_is_chance(tmp_path: Path) -> None:
    late = _ended(tmp_path, "while True: print('on', flush=True)", deadline_s=2)
    assert late.ending == "did not end within 2 s"
    assert re.fullmatch(r"[0-3] s of them on a CPU", late.message)
    assert outcome_text(late) == f"{late.ending}, {late.message}"
    assert are_alike(late, replace(late, message="9 s of them on a CPU", output="", left_out=""))
    assert not are_alike(late, replace(late, ending="exit 0"))


def test_the_limit_of_recompiles_is_one_class_in_all_releases() -> None:
    old = replace(
        GOOD, exception="torch._dynamo.exc.Unsupported", message="cache_size_limit reached"
    )
    new = replace(old, exception="torch._dynamo.exc.FailOnRecompileLimitHit", message="fullgraph")
    assert are_alike(old, new)
    assert not are_alike(replace(old, message="call_method sin"), new)


def test_an_exception_under_a_hook_of_the_script_is_compared(tmp_path: Path) -> None:
    own = "import sys\nsys.excepthook = lambda *_: print('it failed', file=sys.stderr)\n"
    one, other = (
        _ended(tmp_path, f"{own}raise {kind}('a')") for kind in ("ValueError", "KeyError")
    )
    assert outcome_text(one) == "ValueError: a"
    assert not are_alike(one, other)
    # As PyErr_Print of code in C leaves it.
    printed = _ended(tmp_path, "import sys; sys.last_exc = ValueError(3)")
    assert (printed.ending, printed.exception) == ("exit 0", "")


def _innermost(tmp_path: Path, code: str) -> list[str]:
    """Return type and message of the exception from which a script's own was raised."""
    seen = _observed(tmp_path, code)
    assert seen is not None
    found: list[str] = seen["exception"].get("inner", [])
    return found


def test_the_observer_finds_what_an_exception_was_raised_from(tmp_path: Path) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "exc.py").write_text(
        "class InductorError(Exception): ...\n"
        "def fail():\n"
        "    try: {}['a key']\n"
        "    except KeyError as error: raise InductorError('no kernel') from error\n"
        "def check():\n"
        "    try: {}['a key']\n"
        "    except KeyError: raise RuntimeError('a check')\n"
    )
    failing = """
        from torch.exc import fail, check
        try:
            {call}
        except Exception as error:
            raise RuntimeError("it does not compile") {how}
    """
    inductors = ["torch.exc.InductorError", "no kernel"]
    assert _innermost(tmp_path, failing.format(call="fail()", how="from error")) == inductors
    assert _innermost(tmp_path, failing.format(call="fail()", how="")) == inductors
    assert _innermost(tmp_path, failing.format(call="fail()", how="from None")) == []
    # What torch handled before is no cause of what it raises.
    checked = ["RuntimeError", "a check"]
    assert _innermost(tmp_path, failing.format(call="check()", how="")) == checked
    assert _innermost(tmp_path, "from torch.exc import check; check()") == []
    assert _innermost(tmp_path, "from torch.exc import fail; fail()") == []
    ring = "a, b = ValueError(1), KeyError(2); a.__cause__, b.__cause__ = b, a; raise a"
    assert _innermost(tmp_path, ring) != ["TypeError", ""]


@pytest.mark.parametrize("code", ["import os; os._exit(0)", "import os; os.kill(os.getpid(), 9)"])
def test_a_process_that_ends_at_once_is_not_counted(tmp_path: Path, code: str) -> None:
    assert _observed(tmp_path, code) is None


def test_a_fork_does_not_answer_for_the_script(tmp_path: Path) -> None:
    seen = _observed(
        tmp_path,
        """
        import os, sys
        if os.fork() == 0:
            raise ValueError("the child")
        os.wait()
        """,
    )
    assert seen is not None
    assert "exception" not in seen


def test_a_check_of_instructions_needs_no_torch(tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=False)
    (packages,) = tmp_path.glob("lib/python3*/site-packages")
    library = packages / "torch" / "lib" / "libtorch.so"
    library.parent.mkdir(parents=True)
    subprocess.run(["g++", "-shared", "-x", "c++", "/dev/null", "-o", library], check=True)
    (packages / "torch" / "__init__.py").write_text("raise SystemExit('torch')")
    (packages / f"{observer.MODULE}.py").write_bytes((SHIPPED / "observer.py").read_bytes())
    (packages / f"{observer.MODULE}.pth").write_text(observer.PTH)

    def ended(code: str) -> tuple[int, str]:
        command = [str(tmp_path / "bin" / "python"), "-c", code]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        return run.returncode, run.stderr

    assert ended(f'{observer.CHECK}{library}")\n') == (0, "")
    # What does not load is what Inductor's own code says of it, and all other code is as it was.
    assert ended(f'{observer.CHECK}{packages}/missing.so")\n') == (1, "torch\n")
    assert ended(f'import torch; print("{library}")') == (1, "torch\n")
    assert ended(f'{observer.CHECK}{library}")\nprint(1)') == (1, "torch\n")
    assert ended("") == (0, "")


def test_reasons_have_no_address_and_no_address_of_a_page() -> None:
    guard = "0/0: ___check_obj_id(self._modules['attn'].processor, 139686391168368)"
    found = SimpleNamespace(guard_failures={"no code": [guard]})
    assert observer.failed_guards(found) == [
        "?: ___check_obj_id(self._modules['attn'].processor, ...)"
    ]
    broken = SimpleNamespace(reason="Shape mismatch\n For more details about this graph break, x")
    assert observer.reason_of(broken) == "Shape mismatch"


def test_graph_breaks_and_recompiles_are_those_of_dynamo(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    code = """
        import torch
        @torch.compile(backend="eager")
        def f(x):
            y = x.sin()
            if y.sum() > 0:
                return y + 1
            return y - 1
        f(torch.ones(4)); f(torch.ones(5))
    """
    seen = _observed(tmp_path, code)
    assert seen is not None
    # Both parts of the function, each for one shape and then for any.
    assert (seen["graphs"], seen["graph_breaks"], seen["recompiles"]) == (4, 2, 2)
    assert seen["failed_guards"]
    assert all("size mismatch at index 0" in one for one in seen["failed_guards"])
    assert any(one.startswith("f: ") for one in seen["failed_guards"])
    assert not any("/" in one for one in seen["failed_guards"])
    reset = _observed(tmp_path, code + "    torch._dynamo.reset()\n")
    assert reset is not None
    assert reset["recompiles"] is None


@pytest.mark.parametrize(
    ("body", "breaks"),
    [
        # Dynamo passes the exception on
        pytest.param("x.sin() @ torch.ones(7, 7)", 0, marks=pytest.mark.full),
        ("x.sin().missing()", 1),  # Dynamo gives the frame up, and eager code raises
        pytest.param("torch._dynamo.graph_break() or x.sin()", 1, marks=pytest.mark.full),
    ],
)
def test_a_frame_that_raised_is_no_graph_break(tmp_path: Path, body: str, breaks: int) -> None:
    pytest.importorskip("torch")
    code = f"""
        import torch
        @torch.compile(backend="eager")
        def f(x):
            return {body}
        try:
            f(torch.ones(3, 3))
        except Exception:
            pass
    """
    seen = _observed(tmp_path, code)
    assert seen is not None
    assert seen["graph_breaks"] == breaks


@pytest.mark.parametrize(
    ("backend", "change", "captured", "changed", "refused"),
    [
        ("inductor", {"backend": "eager"}, 1, True, False),
        pytest.param("aot_eager", {"backend": "eager"}, 1, True, False, marks=pytest.mark.full),
        pytest.param("ts", {"backend": "eager"}, 1, False, False, marks=pytest.mark.full),
        ("eager", OFF, 0, 0, 0),
        pytest.param("eager", DISABLED, 0, 0, 0, marks=pytest.mark.full),
        ("eager", {"settings": [DISABLED, LACKING]}, 0, 0, 0),
        pytest.param("eager", LACKING, 1, 0, 1, marks=pytest.mark.full),
    ],
)
def test_the_compiler_is_changed_before_the_script_begins(  # noqa: PLR0917
    tmp_path: Path,
    backend: str,
    change: dict[str, Any],
    captured: int,
    changed: bool,  # noqa: FBT001
    refused: bool,  # noqa: FBT001
) -> None:
    pytest.importorskip("torch")
    code = f"""
        import torch
        f = torch.compile(lambda x: x.sin(), backend={backend!r}, fullgraph=True)
        f(torch.ones(3))
    """
    seen = _observed(tmp_path, code, change)
    assert seen is not None
    if change == OFF:  # with ``disable`` alone, fullgraph=True raises in new releases
        assert "exception" not in seen
    assert seen["captured"] == captured
    assert seen.get("changed", False) == changed
    assert ("refused" in seen) == refused


def test_room_is_made_of_the_cells_that_were_used_longest_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for age, name in enumerate("abc"):
        (tmp_path / name).mkdir()
        mark = tmp_path / name / MARK
        mark.write_text(json.dumps({"bytes": 2e9}))
        os.utime(mark, (1e9 - age, 1e9 - age))
    monkeypatch.setenv(LIMIT_VARIABLE, "5")
    make_room(tmp_path, int(1e9))
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["a", "b"]
    monkeypatch.setenv(LIMIT_VARIABLE, "much")
    with pytest.raises(SpecError, match="must be a number of gigabytes"):
        make_room(tmp_path, 0)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"bytes": "many"}'])
def test_a_cell_with_a_damaged_mark_is_no_cell(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, mark in (("a", json.dumps({"bytes": 2e9})), ("b", text)):
        (cells_folder() / name).mkdir(parents=True)
        (cells_folder() / name / MARK).write_text(mark)
    assert observe_cells().seen.startswith("1 of scripts and targets, 2.0 of")
    make_room(cells_folder(), 0)


def _blamed(*right: str, usual: str = "wrong", first: str = "wrong") -> ScriptBlame:
    """Return the blame of a script that ends right with these changes of the compiler."""

    def run(change: Any) -> ScriptOutcome:  # noqa: ANN401
        if change is None:
            return replace(GOOD, output=first)
        fields = (one["field"] for one in change.get("settings", [change]) if "field" in one)
        names = {change.get("backend", ""), *fields, *(["off"] if change == OFF else [])}
        if any(f"no {name}" in right for name in names):
            return not_run("not here")
        return replace(GOOD, output="right" if names & {*right} else usual)

    settings = {"aot_eager": [("m", "a", 1), ("m", "b", 2)], "inductor": [("m", "c", 3)]}
    return blame_script(run, ("eager", "aot_eager", "inductor"), settings)


def test_the_first_backend_that_shows_it_is_blamed_and_what_cures_it_is_named() -> None:
    assert _blamed("off", "eager", "b", "c") == ScriptBlame("aot_eager", cures=("m.b=2",))
    assert _blamed("off", "eager", "aot_eager", "no c") == ScriptBlame("inductor", cures=())
    earlier = _blamed("off", "eager", "aot_eager", "a", "no c")  # a setting of an earlier stage
    assert earlier == ScriptBlame("inductor", cures=("m.a=1",))


def test_what_lowers_a_count_or_compiles_nothing_is_no_cure() -> None:
    seen = replace(GOOD, graphs=3, graph_breaks=2, reasons=("an item", "a print"))
    ends = {"lowers": (3, 1), "skips": (0, 0), "cures": (1, 0)}
    settings = {"eager": [("m", name, 1) for name in ends]}

    def cures(names: Sequence[str], symptom: Symptom) -> tuple[str, ...]:
        def run(change: Any) -> ScriptOutcome:  # noqa: ANN401
            fields = [one["field"] for one in change["settings"]]
            graphs, breaks = min((ends[one] for one in fields), key=lambda end: end[1])
            bad = symptom.seen if breaks else symptom.without
            return replace(bad, graphs=graphs, graph_breaks=breaks)

        chosen = {"eager": [one for one in settings["eager"] if one[1] in names]}
        return blame_script(run, ("eager",), chosen, symptom).cures

    count = Symptom(seen=seen, without=seen, count="graph_breaks")
    failure = Symptom(seen=replace(seen, ending="exit 1"), without=seen)
    for symptom in (count, failure):
        assert cures(["lowers", "cures"], symptom) == ("m.cures=1",)
        assert cures(["lowers"], symptom) == cures(["skips"], symptom) == ()


def test_no_stage_is_blamed_without_grounds() -> None:
    assert _blamed().why == "the script ends the same way without the compiler"
    assert "flaky" in _blamed("off", first="other").why
    assert _blamed("off", "no eager") == ScriptBlame("", "not here")


def test_options_that_ivhl_does_not_have_are_those_of_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Script] = []

    class Runs:
        def __init__(self, script: Script, *_: object) -> None:
            seen.append(script)
            raise SpecError("enough")

    monkeypatch.setattr("ivhl.cli.run.ScriptRuns", Runs)
    (tmp_path / "a.py").write_text("print(1)")
    monkeypatch.chdir(tmp_path)
    words = ["a.py", "-batch", "32", "-h", "--own=-5", "--torch", "2.15.0", "--", "--torch", "9"]
    result = CliRunner().invoke(app, ["run", *words])
    assert str(result.exception) == "enough", result.output
    assert seen[0].arguments == ("-batch", "32", "-h", "--own=-5", "--torch", "9")
