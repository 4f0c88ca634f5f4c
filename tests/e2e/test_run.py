"""``ivhl run``: a script in cells of two releases, from a folder without a project."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from uv import find_uv_bin

from studies.schemas import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Callable

# On Python 3.13, Dynamo refuses in the first and works in the second.
RELEASES = "2.5.1,2.15.0"
REPRODUCERS = Path(__file__).parent / "reproducers"
FOUNDING = """
import sys, torch
from beside import SHAPE

@torch.compile(backend="eager")
def f(x):
    return x.sin()

print(sys.argv[1:], f(torch.ones(SHAPE)).shape, torch.__version__)
"""
# The same, as far as a reader sees, without the seconds of an import of torch.
ENDS = """
from importlib.metadata import version
assert version("torch").startswith("2.15.0")
print("Size")
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Return a function that runs a script from its own folder, with cells of this module."""
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "beside.py").write_text("SHAPE = (2, 3)\n")
    cache = subprocess.check_output([find_uv_bin(), "cache", "dir"], text=True).strip()
    environment = os.environ | {
        "XDG_CACHE_HOME": str(folder.parent / "cache"),
        "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", cache),
    }

    def ivhl(code: str, *words: str) -> subprocess.CompletedProcess[str]:
        (folder / "script.py").write_text(code)
        return subprocess.run(
            [sys.executable, "-m", "ivhl", *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def call(code: str, *arguments: str, options: tuple[str, ...] = ()) -> tuple[int, Any]:
        named = [] if "--torch" in options else ["--torch", RELEASES]
        words = ("run", "--json", "--python", "3.13", *named, "script.py", *options, *arguments)
        done = ivhl(code, *words)
        assert done.stdout, done.stderr
        SCHEMAS["script"].validate_json(done.stdout)
        return done.returncode, json.loads(done.stdout)

    call.folder, call.environment, call.ivhl = folder, environment, ivhl  # type: ignore[attr-defined]
    return call


def test_a_script_says_which_release_refuses_this_python(run: Callable[..., Any]) -> None:
    code, told = run(FOUNDING, "--own", "--", "--torch", "x")
    old, new = (cell["outcome"] for cell in told["cells"])
    assert code == 7
    assert told["differences"] == [["py3.13-torch2.5.1", "py3.13-torch2.15.0"]]
    assert "Dynamo is not supported on Python 3.13+" in old["message"]
    assert new["ending"] == "exit 0"
    assert new["output"].startswith("['--own', '--torch', 'x'] torch.Size([2, 3]) 2.15.0")
    # Both sides of the boundary were run again.
    assert old["runs"] == new["runs"] == 2
    assert not old["flaky"]
    assert new["graphs"] == 1


def test_the_text_of_an_issue_has_script_stage_and_release(run: Callable[..., Any]) -> None:
    words = ("report", "script.py", "--python", "3.13", "--torch", "2.5.1")
    done = run.ivhl(FOUNDING, *words)  # type: ignore[attr-defined]
    assert done.returncode == 0, done.stderr
    assert "raises `RuntimeError: Dynamo is not supported on Python 3.13+`" in done.stdout
    assert FOUNDING.strip() in done.stdout
    assert "[] torch.Size([2, 3]) 2.5.1" in done.stdout  # without the compiler
    assert "\n`eager`: Dynamo" in done.stdout
    assert "- [pytorch/pytorch#144048](https://github.com/pytorch" in done.stdout
    assert str(run.folder) not in done.stdout  # type: ignore[attr-defined]


def test_what_is_expected_is_asked_of_each_release(run: Callable[..., Any]) -> None:
    code, told = run(ENDS, options=("--expect", "0", "--expect", "Size"))
    assert code == 7
    assert told["unexpected"] == ["py3.13-torch2.5.1"]


def test_a_script_is_the_main_module_and_has_no_network(run: Callable[..., Any]) -> None:
    code, told = run(
        """
        import socket, multiprocessing, sys

        def double(x):
            return 2 * x

        if __name__ == "__main__":
            with socket.socket() as here:
                here.bind(("127.0.0.1", 0))
            try:
                socket.create_connection(("192.0.2.1", 80), timeout=2)
            except OSError as error:
                print("no network")
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(double, [1, 2]), sys.stdin.read() == "")
    """.replace("\n        ", "\n")
    )
    assert code == 0
    assert {cell["outcome"]["output"] for cell in told["cells"]} == {"no network\n[2, 4] True\n"}


@pytest.mark.parametrize(
    ("script", "ending", "counted"),
    [
        ("import os; os._exit(3)", "exit 3", False),
        ("import os; os.abort()", "SIGABRT", False),
        ("import sys; sys.exit(4)", "exit 4", True),
        (
            "print('x' * 80 + chr(10), end='') or [print('y' * 99) for _ in range(99999)]",
            "exit 0",
            True,
        ),
        ("import time; time.sleep(60)", "did not end within 3 s", False),
    ],
)
def test_a_script_may_end_in_any_way(
    run: Callable[..., Any],
    script: str,
    ending: str,
    counted: bool,  # noqa: FBT001
) -> None:
    # Beside other tests a script that prints megabytes takes some seconds.
    deadline = ("--deadline", "3") if "sleep" in script else ()
    code, told = run(script, options=("--torch", "2.15.0", *deadline))
    (cell,) = told["cells"]
    assert code == 0
    assert cell["outcome"]["ending"] == ending
    assert (cell["outcome"]["recompiles"] == 0) is counted
    assert len(cell["outcome"]["output"]) < 2_100_000  # what is kept of a script


def test_a_requirement_that_excludes_a_release_is_an_outcome(run: Callable[..., Any]) -> None:
    block = "# /// script\n# dependencies = ['torch<2.6']\n# ///\nprint(1)\n"
    code, told = run(block)
    assert code == 0
    assert [cell["outcome"]["runs"] for cell in told["cells"]] == [1, 0]
    assert told["cells"][1]["outcome"]["ending"] == "pinned out: the script needs torch<2.6"


@pytest.mark.parametrize(("release", "status"), [("2.15.0", "works"), ("2.5.1", "unsupported")])
def test_a_function_of_torch_is_tried_without_a_file(
    run: Callable[..., Any], release: str, status: str
) -> None:
    command = [sys.executable, "-m", "ivhl", "try", "torch:bmm", "--python", "3.13", "--json"]
    done = subprocess.run(
        [*command, "--torch", release],
        cwd=run.folder,  # type: ignore[attr-defined]
        env=run.environment,  # type: ignore[attr-defined]
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    SCHEMAS["try"].validate_json(done.stdout)
    (cell,) = json.loads(done.stdout)["cells"]
    assert cell["status"] == status, cell
    assert cell["inputs"] == "10,3,4; 10,4,5"
    assert (done.returncode == 0) is (status == "works")
    if status == "works":
        assert cell["second"]["off"] < 1e-5
        assert cell["accuracy"]
    else:
        assert "Dynamo is not supported on Python 3.13+" in cell["reason"]


@pytest.mark.full
def test_a_cell_that_is_left_half_made_is_made_again(run: Callable[..., Any]) -> None:
    folder: Path = run.folder  # type: ignore[attr-defined]
    environment = run.environment | {  # type: ignore[attr-defined]
        "XDG_CACHE_HOME": str(folder.parent / "other")
    }
    (folder / "script.py").write_text("print(1)")
    command = [sys.executable, "-m", "ivhl", "run", "--python", "3.13", "--torch", "2.15.0"]
    cells = folder.parent / "other" / "ivhl" / "cells"
    with subprocess.Popen([*command, "script.py"], cwd=folder, env=environment) as process:
        while not list(cells.glob("*/lib/python3.13/site-packages/*")):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    (half,) = (path for path in cells.iterdir() if path.is_dir())
    assert not (half / "ivhl-cell.json").exists()
    done = subprocess.run([*command, "script.py"], cwd=folder, env=environment, check=False)
    assert done.returncode == 0
    assert (half / "ivhl-cell.json").exists()


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("cumsum_dtype", "compiled torch.int64", "compiled torch.bfloat16"),
        ("dropout_alias", "[1.0, 1.0, 1.0, 1.0]", "[2.0, 2.0, 2.0, 2.0]"),
        ("grad_of_view", "compiled [[0.0, 0.0, 1.0]", "compiled [[0.0, 0.0, 2.0]"),
    ],
)
def test_reproducers_end_as_the_documents_say(
    run: Callable[..., Any], name: str, old: str, new: str
) -> None:
    code = (REPRODUCERS / f"{name}.py").read_text(encoding="utf-8")
    told = run(code, options=("--torch", "2.6.0,2.15.0"))[1]
    assert told["differences"] == [["py3.13-torch2.6.0", "py3.13-torch2.15.0"]]
    outputs = [cell["outcome"]["output"] for cell in told["cells"]]
    assert old in outputs[0]
    assert new in outputs[1]
