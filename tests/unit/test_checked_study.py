"""The script of a hand check runs without ivhl, and says what compiled code does."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ivhl.errors import SpecError
from ivhl.observatory.record import append
from studies import checked
from studies.checked import _about, drawn, logged_breaks, main, script_of
from tests.unit.test_signatures import made

if TYPE_CHECKING:
    from ivhl.observatory.record import Observed

# Functions of a row: right, wrong and failing once they are compiled.
FUNCTIONS = """\
import torch

def right(x, y):
    return {"sum": x.sin() + y, "others": [x * 2, None]}

def wrong(x):
    return x * (2.5 if torch.compiler.is_compiling() else 2.0)

def constant(x):
    return x.detach() + 1

def detached(x):
    return x.detach() + 1 if torch.compiler.is_compiling() else x + 1

def failing_larger(x):
    return failing(x) if len(x) > 4 else x

@torch.compiler.disable
def count(calls=[]):
    calls.append(1)
    if len(calls) == 9:  # the third compiled call, after three in float64 and three in float32
        raise RuntimeError("after a larger batch")

def failing_again(x):
    count()
    return x + 1

def failing(x):
    return x + 1 if not torch.compiler.is_compiling() else x @ torch.ones(1, 7)
"""
FAILED = {"class": "import", "exception": "", "message": "m", "where": "", "frame": ""}


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ('timm:create_model("a", pretrained=False)', "from timm import create_model"),
        ("a.b:Model(Config(n=3), torch.nn.ReLU())", "from a.b import Config, Model"),
        ("a:make([n for n in range(3)], str)", "from a import make"),
        ("functions/kornia_cases.py:blur", '"../functions"'),
    ],
)
def test_a_script_imports_what_its_target_names(target: str, line: str) -> None:
    text = script_of(made(target=target, inputs="2,3; long 2,32 <1000; mask=bool 4; dim=-1"))
    ast.parse(text)
    assert line in text
    assert "torch.randint(0, 1000, (2, 32))" in text
    assert '"mask": torch.rand((4,)) > 0.5' in text
    assert '"dim": -1' in text
    assert "ivhl" not in text.replace("without ivhl", "")


def test_a_script_names_what_its_row_needs() -> None:
    record = made(library="keras", version="3.1")
    text = script_of(record, needs=("keras[torch]>=3", "numpy<3"))
    assert "--with 'keras[torch]==3.1' --with 'numpy<3' keras-" in text.replace('"', "'")


def test_no_text_of_a_record_is_code_of_the_script() -> None:
    said = '"""\nimport os; os.system("x")\n"""\\'
    record = made(why=f"failed: {said}", library=said, case=said, version=said)
    tree = ast.parse(script_of(record))
    assert "os" not in {
        name.name for n in ast.walk(tree) if isinstance(n, ast.Import) for name in n.names
    }
    assert "system" not in "".join(map(ast.unparse, tree.body[1:]))
    with pytest.raises(SpecError, match="is no module"):
        script_of(made(target="a; import os:f"))
    with pytest.raises(SpecError, match="cannot be made again"):
        script_of(made(inputs="8,4; <object of a library>"))


def test_the_newest_record_is_written_and_a_name_without_record_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "libraries.toml").write_text('[liba.cases]\nsmall = "liba:f"\n')
    (tmp_path / "records").mkdir()
    append(tmp_path / "records", made(status="works", at="2026-11-27T00:00:00+00:00"))
    append(tmp_path / "records", made(status="wrong"))
    names = ["liba", "small", "forward", "py3.12-torch2.15.0", "--observatory", str(tmp_path)]
    assert main([*names, "--write"]) == 0
    written = tmp_path / "checked" / "liba-small-forward.py"
    assert written.read_text(encoding="utf-8").startswith('"""liba 1.0, small, forward: wrong in')
    assert main(["liba", "large", *names[2:]]) == 2
    assert "of this library: liba small forward py3.12-torch2.15.0" in capsys.readouterr().err


# Function, inputs, what is asked, exit status, and what the script prints.
SCRIPTS = [
    ("right", "4,3; 4,3", "step", 0, "compiled code is as exact as eager"),
    ("wrong", "4,3", "forward", 1, "wrong: output"),
    ("wrong", "4,3", "step", 1, "wrong: grad.input.0.0, output"),
    ("detached", "4,3", "step", 1, "wrong: grad.input.0.0"),
    ("constant", "4,3", "step", 2, "eager float32 raises builtins.ValueError: no output depends"),
    ("failing", "4,3", "forward", 2, "compiled float32 raises torch._dynamo.exc."),
    ("failing_larger", "4,3", "forward", 2, "compiled float32 raises torch._dynamo.exc."),
    ("failing_again", "4,3", "forward", 2, "raises builtins.RuntimeError: after a larger batch"),
    ("absent", "4,3", "forward", 2, "import raises builtins.ImportError: cannot import"),
]
# Runs each script in a fork of its own: PyTorch and Dynamo are imported once, which takes seconds.
# The collector would copy the memory of what they have loaded in each fork.
RUNS_EACH = """\
import gc, os, runpy, sys, torch
torch.compile(torch.sin, backend="eager")(torch.ones(1))
gc.freeze()
for script in sys.argv[1:]:
    if os.fork():
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        continue
    os.dup2(os.open(f"{script}.txt", os.O_CREAT | os.O_WRONLY), 1)
    sys.argv = [script]
    runpy.run_path(script, run_name="__main__")
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], tuple[int, str]]:
    """Return the exit status and the output of each script, by its function and what it asks."""
    pytest.importorskip("torch", reason="runs the scripts")
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "functions.py").write_text(FUNCTIONS, encoding="utf-8")
    written = {}
    for name, inputs, ask, *_ in SCRIPTS:
        larger = {"inputs": "5,3", "recompiles": 1, "off": None}
        status = "failed" if name.startswith("failing_") else "works"
        target = f"functions.py:{name}"
        record = made(target=target, inputs=inputs, ask=ask, status=status, second=larger)
        if name == "absent":
            failure = FAILED | {"phase": "import"}
            record = made(target=target, inputs=inputs, status="failed", failure=failure)
        if name == "failing_again":
            failure = FAILED | {"phase": "accuracy"}
            about = {"inputs": inputs, "status": status, "second": larger}
            record = made(target=target, failure=failure, **about)
        # Without Inductor: what the script compares is the same, and the C++ compiler is not needed.
        text = script_of(record, folder).replace(
            "torch.compile(function)", 'torch.compile(function, backend="eager")'
        )
        written[name, ask] = folder / f"{name}-{ask}.py"
        written[name, ask].write_text(text, encoding="utf-8")
    command = [sys.executable, "-I", "-u", "-c", RUNS_EACH, *map(str, written.values())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    statuses = map(int, done.stdout.split())
    return {
        asked: (status, Path(f"{script}.txt").read_text(encoding="utf-8"))
        for (asked, script), status in zip(written.items(), statuses, strict=True)
    }


@pytest.mark.parametrize(("name", "inputs", "ask", "code", "said"), SCRIPTS)
def test_the_script_tells_right_wrong_and_failing_apart(  # noqa: PLR0917  (a table)
    ended: dict[tuple[str, str], tuple[int, str]],
    name: str,
    inputs: str,  # noqa: ARG001  (of the script)
    ask: str,
    code: int,
    said: str,
) -> None:
    status, printed = ended[name, ask]
    assert status == code, printed
    assert said in printed
    if code < 2:
        assert "compiled-float64" in printed


def test_of_what_works_a_share_is_drawn_and_one_of_each_failure_when_compiled() -> None:
    failure = {"phase": "compile", "class": "compile", "exception": "", "message": "m"}
    failure |= {"where": "", "frame": ""}
    works = [made(case=f"c{number}", status="works") for number in range(40)]
    records = [
        *works,
        made(case="bad", status="wrong"),
        made(case="fails", status="failed", failure=failure, cpu_s=3.0),
        made(case="fails as well", status="failed", failure=failure, cpu_s=4.0),
        made(case="absent", status="failed", failure=failure | {"phase": "import"}),
    ]
    found = drawn(records, 20, seed=1)
    assert [one.case for one in found[-2:]] == ["bad", "fails"]
    assert 2 <= len(found[:-2]) <= 20
    assert {one.status for one in found[:-2]} == {"works"}
    assert found == drawn(records[::-1], 20, seed=1)
    # A failure is checked once, by whichever record.
    (checked_one,) = (record for record in records if record.case == "fails as well")
    assert drawn(records, 20, 1, {_about(checked_one)}) == found[:-1]
    assert found[:-2] != drawn(records, 20, seed=2)[:-2]
    # A later record changes no earlier draw.
    later = drawn([*records, made(case="later", status="works")], 20, seed=1)
    assert [one for one in later if one.case != "later"] == found


def test_what_scripts_say_is_noted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for case, status in (("a", "works"), ("b", "wrong")):
        append(tmp_path / "records", made(case=case, status=status))
    (tmp_path / "checked").mkdir()
    asked: list[str] = []

    def run(record: Observed, _: Path) -> tuple[int, str, int]:
        asked.append(record.case)
        return 0, "compiled code is as exact as eager", 0

    monkeypatch.setattr(checked, "run_script", run)
    for disagree in (1, 0):  # what has a line is not run again
        assert main(["--draw", "100", "--observatory", str(tmp_path)]) == disagree
    assert asked == ["a", "b"]
    lines = (tmp_path / "checked" / "outcomes.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("library,version,case,ask,cell,recorded,at,exit,agrees,says")
    assert [line.split(",")[8] for line in lines[1:]] == ["yes", "no"]


@pytest.mark.parametrize(
    ("status", "phase", "ends", "agrees"),
    [
        ("unsupported", "compile", 2, "yes"),  # as releases that refuse a Python
        ("unsupported", "compile", 0, "no"),
        ("failed", "import", 2, "yes"),
        ("failed", "import", 1, "no"),  # a wrong result, not a failure
    ],
)
def test_a_refusal_and_a_failed_import_end_the_script_as_a_failure(  # noqa: PLR0917  (a table)
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: str,
    phase: str,
    ends: int,
    agrees: str,
) -> None:
    monkeypatch.setattr(checked, "run_script", lambda *_: (ends, "raises", 0))
    record = made(status=status, failure=FAILED | {"phase": phase})
    ((*_, said, _, _, _),) = checked.check([record], tmp_path, set())
    assert said == agrees


def test_a_function_that_is_given_up_after_a_break_has_one_graph_break() -> None:
    log = (
        "Graph break in user code at a.py:3\n"
        "Graph break (user stack suppressed due to duplicate graph break) in user code at a.py:3\n"
        "Graph break (details suppressed) in user code at a.py:3\n"
        "WON'T CONVERT f a.py line 1\n"
        "WON'T CONVERT <genexpr> a.py line 7\n"
        "Graph break in user code at a.py:9\n"
        "WON'T CONVERT <genexpr> a.py line 7\n"
    )
    assert logged_breaks(log) == 6
