"""A check that is switched off lets its tests run, and what they show decides whether it may go.

The tests of the planted projects run for real, in the Python of this test: a cell and the
installation are left out, which ``ivhl checks --run`` shows on public projects (docs/checks.md).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from typer.testing import CliRunner

from ivhl.cli import app
from ivhl.errors import IvhlError, LockError, SpecError
from ivhl.matrix.spec import CellSpec
from ivhl.version_checks import trial
from ivhl.version_checks.find import find_checks
from ivhl.version_checks.trial import Attempt, WithoutCheck, conclusion, find_tests, run_without

if TYPE_CHECKING:
    from ivhl.version_checks.trial import TrialVerdict

ROOT = Path(__file__).parents[2]
CELL = CellSpec("3.12", "2.6.0")
CHECKED = """import sys
import pytest


@pytest.mark.skipif(sys.version_info >= (3, 11), reason="torch.compile is refused")
def test_compiled():
    {body}
"""
# As if Dynamo had compiled something.
COMPILED = """from types import ModuleType
    module = ModuleType("torch._dynamo.convert_frame")
    module.FRAME_COUNTER = 1
    sys.modules[module.__name__] = module"""
# As ``torch.compiler.reset`` does.
FORGOTTEN = """
    import time
    time.sleep(0.5)
    module.FRAME_COUNTER = 0"""
# Fails each second time that it runs without its check.
EVERY_SECOND = """from pathlib import Path
    seen = Path({seen!r})
    runs = seen.read_text() if seen.exists() else ""
    seen.write_text(runs + "1")
    assert len(runs) % 2, "compiled otherwise" """


@pytest.fixture(autouse=True)
def _this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "make_cell", lambda *_: Path(sys.prefix))
    monkeypatch.setattr(trial, "_install", lambda *_: None)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take longer than the tests


def run(
    tmp_path: Path, text: str, *, name: str = "test_it.py", tests: tuple[str, ...] = ()
) -> WithoutCheck:
    folder, here = tmp_path / "project", tmp_path / "here"
    folder.mkdir(exist_ok=True)
    here.mkdir()
    (folder / name).write_text(text)
    check, *others = find_checks(folder).checks
    attempt = Attempt(
        root=tmp_path, folder=folder, check=check, tests=tests or find_tests(folder, check),
        extra=(), here=here, others=tuple(others), deadline_s=60,
    )  # fmt: skip
    (found,) = run_without(attempt, [CELL], Console(quiet=True))
    assert (folder / name).read_text() == text
    return found


def test_a_test_that_passes_without_its_check_lets_it_go(tmp_path: Path) -> None:
    found = run(tmp_path, CHECKED.format(body=COMPILED))
    assert found.before is not None
    assert (found.verdict, found.before.skipped, found.runs[0].passed) == ("passes", 1, 1)
    assert conclusion([found]) == [
        "Python 3.12: may go: passes without it from PyTorch 2.6.0 on (tried 2.6.0)"
    ]


@pytest.mark.parametrize(
    "mark",
    [
        "@pytest.mark.skip(reason='torch.compile is refused')\ndef test_it():",
        "@pytest.mark.xfail\ndef test_it():",
        "def test_it(request):\n    request.applymarker(pytest.mark.xfail(strict=True))",
        (
            "def test_it(request):\n    on_all = sys.version_info >= (3, 11)"
            "\n    request.node.add_marker(pytest.mark.xfail(on_all, strict=True, reason='no'))"
        ),
    ],
)
def test_marks_without_a_condition_and_of_a_running_test_can_go(tmp_path: Path, mark: str) -> None:
    text = f"import sys\nimport pytest\n\n{mark}\n    'Runs torch.compile.'\n    {COMPILED}\n"
    found = run(tmp_path, text)
    assert (found.verdict, found.runs[0].passed) == ("passes", 1)


@pytest.mark.parametrize("body", ["assert disabled() == 1", COMPILED + FORGOTTEN])
def test_a_function_whose_tests_compile_nothing_stays_disabled(tmp_path: Path, body: str) -> None:
    text = (
        "import sys\nclass torch:\n    class compiler:\n"
        "        disable = staticmethod(lambda f: f)\n"
        f"@torch.compiler.disable\ndef disabled(): return 1\ndef test_it():\n    {body}\n"
    )
    found = run(tmp_path, text, tests=("test_it.py",))
    if body.startswith("assert"):
        assert found.verdict == "undecided"
        assert found.reason == "nothing was compiled: 1 test passed without it"
    else:
        assert found.verdict == "passes"


def test_a_test_that_fails_without_its_check_is_run_twice_and_keeps_it(tmp_path: Path) -> None:
    body = "raise RuntimeError('Dynamo is not supported')"
    found = run(tmp_path, CHECKED.format(body=body))
    assert (found.verdict, len(found.runs)) == ("fails", 2)
    assert found.reason == "RuntimeError: Dynamo is not supported"
    assert "must stay: fails with PyTorch 2.6.0" in conclusion([found])[0]


def test_a_test_that_fails_every_second_time_is_flaky(tmp_path: Path) -> None:
    body = EVERY_SECOND.format(seen=str(tmp_path / "seen"))
    found = run(tmp_path, CHECKED.format(body=body))
    assert found.verdict == "flaky"
    assert found.reason.startswith("failed in 1 of 2 runs: AssertionError: compiled otherwise")
    assert "must stay: flaky" in conclusion([found])[0]


def test_what_fails_with_the_check_too_or_does_not_run_decides_nothing(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    broken = run(tmp_path / "one", "import nothing_of_this_name\n" + CHECKED.format(body="pass"))
    assert broken.verdict == "undecided"
    assert broken.reason == (
        "fails with the check, too: collection failure: ModuleNotFoundError: No module named "
        "'nothing_of_this_name'"
    )
    (tmp_path / "two").mkdir()
    skipped = run(tmp_path / "two", CHECKED.format(body="pytest.skip('no GPU')"))
    assert skipped.verdict == "undecided"
    assert "no GPU" in skipped.reason
    assert conclusion([skipped]) == ["Python 3.12: nothing is decided (tried 2.6.0)"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise OSError('no connection to the hub')", "OSError: no connection to the hub"),
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named"),
        ("open('/nothing/here')", "FileNotFoundError: [Errno 2] No such file"),
        ("import urllib.error\n    raise urllib.error.URLError('no')", "urllib.error.URLError"),
    ],
)
def test_a_skipped_test_that_lacks_what_it_needs_does_not_keep_its_check(
    tmp_path: Path, body: str, reason: str
) -> None:
    found = run(tmp_path, CHECKED.format(body=body))
    assert (found.verdict, len(found.runs)) == ("undecided", 1)
    assert found.reason.startswith("lacks what it needs here, whatever the compiler does: ")
    assert reason in found.reason
    assert conclusion([found]) == ["Python 3.12: nothing is decided (tried 2.6.0)"]


def test_a_fixture_that_is_not_there_says_nothing_of_the_compiler(tmp_path: Path) -> None:
    text = CHECKED.format(body="pass").replace("test_compiled()", "test_compiled(benchmark)")
    found = run(tmp_path, text)
    assert found.verdict == "undecided"
    assert "fixture 'benchmark' not found" in found.reason


def test_one_test_that_the_compiler_fails_is_enough(tmp_path: Path) -> None:
    text = """import sys
import pytest


@pytest.mark.skipif(sys.version_info >= (3, 11), reason="torch.compile is refused")
class TestBoth:
    def test_one(self):
        raise OSError("no connection to the hub")

    def test_other(self):
        raise RuntimeError("Dynamo is not supported")
"""
    found = run(tmp_path, text)
    assert (found.verdict, found.reason) == ("fails", "RuntimeError: Dynamo is not supported")


def test_another_check_that_raises_or_skips_in_its_place_decides_nothing(tmp_path: Path) -> None:
    for number, body in enumerate(
        (
            """if sys.version_info >= (3, 12):
        raise RuntimeError("torch.compile does not work here")""",
            """if sys.version_info >= (3, 12):
        pytest.skip("torch.compile does not work here")""",
        )
    ):
        (tmp_path / str(number)).mkdir()
        found = run(tmp_path / str(number), CHECKED.format(body=body))
        assert found.verdict == "undecided"
        assert found.reason.startswith("another check decides, test_it.py:7: ")
        assert conclusion([found]) == ["Python 3.12: nothing is decided (tried 2.6.0)"]


def test_a_strict_xfail_that_passes_is_no_failure_without_it(tmp_path: Path) -> None:
    text = CHECKED.format(body=COMPILED).replace("skipif(", "xfail(strict=True, condition=")
    found = run(tmp_path, text)
    assert found.before is not None
    assert (found.before.failed, found.verdict) == (1, "passes")


def test_settings_of_pytest_around_the_code_base_do_not_hold_in_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\nfilterwarnings = ["error"]\naddopts = "--nothing"\n'
    )
    warns = f"{COMPILED}\n    import warnings\n    warnings.warn('Old')"
    assert run(tmp_path, CHECKED.format(body=warns)).verdict == "passes"
    (tmp_path / "own").mkdir()
    text = CHECKED.format(body=warns)
    (tmp_path / "own" / "project").mkdir()
    (tmp_path / "own" / "project" / "setup.cfg").write_text(
        "[tool:pytest]\nfilterwarnings = error\n"
    )
    found = run(tmp_path / "own", text)
    assert (found.verdict, found.reason) == ("fails", "UserWarning: Old")


@pytest.mark.parametrize("root", ["here", "Path(__file__).parent", "Path(mkdtemp())"])
def test_the_same_failure_in_both_copies_is_no_failure_of_the_code(
    tmp_path: Path, root: str
) -> None:
    body = f"{COMPILED}\n\ndef test_other():\n    from pathlib import Path\n"
    body += "    from tempfile import mkdtemp\n"
    body += f"    here = Path.cwd()\n    raise ValueError({root} / 'gone')"
    found = run(tmp_path, CHECKED.format(body=body), tests=("test_it.py",))
    assert found.before is not None
    assert (found.before.failed, found.runs[0].failed) == (1, 1)
    assert found.verdict == "undecided"
    assert re.fullmatch(r"fails with the check, too: ValueError: (/.*/)?gone", found.reason)


def test_the_reason_is_that_of_a_test_which_fails_without_the_check_only(tmp_path: Path) -> None:
    body = f"{COMPILED}\n    assert None, 'new'"
    text = f"def test_first():\n    assert None, 'old'\n\n{CHECKED.format(body=body)}"
    found = run(tmp_path, text, tests=("test_it.py",))
    assert (found.verdict, found.reason.splitlines()[0]) == (
        "fails",
        "AssertionError: new assert None",
    )


def test_a_script_runs_in_the_copy_and_names_what_was_raised(tmp_path: Path) -> None:
    script = tmp_path / "check.py"
    script.write_text("import sys; sys.path.insert(0, '.')\nimport fast\nassert fast.COMPILED\n")
    text = (
        "import sys, torch\ndef make(f):\n    return torch.compile(f) if sys.version_info < (3, 11)"
        " else f\nCOMPILED = make(len) is not len\n"
    )
    compiled = COMPILED.replace("    ", "")
    (tmp_path / "torch.py").write_text(f"import sys\n{compiled}\ndef compile(f): return str\n")
    script.write_text(f"import sys\nsys.path[:0] = ['.', {str(tmp_path)!r}]\n{script.read_text()}")
    found = run(tmp_path, text, name="fast.py", tests=(str(script),))
    assert found.before is not None
    assert (found.before.failed, found.before.reason) == (1, "AssertionError")
    assert found.verdict == "passes"


def test_a_file_keeps_its_encoding_when_its_check_is_switched_off(tmp_path: Path) -> None:
    folder, here = tmp_path / "project", tmp_path / "here"
    folder.mkdir()
    here.mkdir()
    text = "# coding: latin-1\n" + CHECKED.format(body=f"assert 'é' == '\\xe9'\n    {COMPILED}")
    (folder / "test_it.py").write_bytes(text.encode("latin-1"))
    (check,) = find_checks(folder).checks
    attempt = Attempt(
        root=tmp_path, folder=folder, check=check, tests=("test_it.py",), extra=(), here=here
    )
    (found,) = run_without(attempt, [CELL], Console(quiet=True))
    assert found.verdict == "passes"


def test_a_cell_that_cannot_be_made_is_undecided_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path, cell: CellSpec) -> Path:
        raise LockError(f"{cell.id}: no such wheel", hint="")

    monkeypatch.setattr(trial, "make_cell", refuse)
    found = run(tmp_path, CHECKED.format(body="assert True"))
    assert (found.verdict, found.reason) == ("undecided", "py3.12-torch2.6.0: no such wheel")


def test_what_cannot_be_installed_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(trial, "make_cell", lambda *_: Path(sys.prefix))
    monkeypatch.setenv("PATH", f"{ROOT}/nothing:{Path(sys.executable).parent}:/usr/bin:/bin")
    with pytest.raises(IvhlError) as told:
        run(tmp_path, CHECKED.format(body="assert True"))  # a folder that is no project
    assert "cannot be installed" in str(told.value)


def test_a_check_of_a_stub_is_not_run(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be switched off"):
        run(
            tmp_path,
            "import sys, torch\nif sys.version_info < (3, 13):\n    g = torch.compile(f)\n",
            name="a.pyi",
            tests=("test_it.py",),
        )


def in_cells(*verdicts: tuple[str, TrialVerdict]) -> list[WithoutCheck]:
    return [
        WithoutCheck(CellSpec("3.13", torch), verdict, None, (), "") for torch, verdict in verdicts
    ]


def test_a_check_may_go_from_the_release_from_which_all_tried_pass() -> None:
    found = in_cells(("2.5.1", "fails"), ("2.6.0", "passes"), ("2.15.0", "passes"))
    (line,) = conclusion(found)
    assert line == (
        "Python 3.13: may go from PyTorch 2.6.0 on; must stay for 2.5.1 (tried 2.5.1, 2.6.0, 2.15.0)"
    )
    hole = in_cells(("2.5.1", "passes"), ("2.6.0", "flaky"), ("2.15.0", "passes"))
    assert "may go from PyTorch 2.15.0 on; must stay for 2.6.0" in conclusion(hole)[0]
    assert "must stay: fails" in conclusion(in_cells(("2.6.0", "passes"), ("2.7.0", "fails")))[0]
    unsure = in_cells(("2.6.0", "passes"), ("2.7.0", "undecided"))
    assert "may go: passes without it from PyTorch 2.6.0 on" in conclusion(unsure)[0]


def test_the_tests_of_a_check_are_itself_or_those_that_name_its_code(tmp_path: Path) -> None:
    check = "    if sys.version_info >= (3, 13):\n        return f\n    return torch.compile(f)\n"
    (tmp_path / "fast.py").write_text(f"import sys, torch\ndef speed_up(f):\n{check}")
    (tmp_path / "test_fast.py").write_text("from fast import speed_up\n")
    (tmp_path / "test_other.py").write_text("speed_up_too = 3\n")
    (one,) = find_checks(tmp_path).checks
    assert find_tests(tmp_path, one) == ("test_fast.py",)
    (tmp_path / "fast.py").unlink()
    inside = CHECKED.format(body="...").replace("\n", "\n    ")
    (tmp_path / "test_fast.py").write_text(f"class TestA:\n    {inside}")
    (own,) = find_checks(tmp_path).checks
    assert find_tests(tmp_path, own) == ("test_fast.py::TestA::test_compiled",)


def test_the_command_says_what_it_ran_and_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_it.py").write_text(CHECKED.format(body=COMPILED))
    monkeypatch.chdir(ROOT)
    command = ["version-checks", str(tmp_path), "--run", "test_it.py:5", "--python", "3.13"]
    shown = CliRunner().invoke(app, [*command, "--torch", "2.15.0"])
    assert shown.exit_code == 0, shown.output
    assert "runs test_it.py::test_compiled in 1 cell" in shown.stdout
    assert "with it: 0 passed, 0 failed, 1 skipped" in shown.stdout
    assert "Python 3.13: may go: passes without it from PyTorch 2.15.0 on" in shown.stdout
