"""Forked processes end like started ones, and none outlives its parent."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ivhl.measure.effort import Effort
from ivhl.measure.job import Job
from ivhl.measure.launcher import read_journal
from ivhl.measure.process import Ending, Nursery, NurseryError, tail
from tests.builders.processes import STARTS, alive, appears, ends

if TYPE_CHECKING:
    from collections.abc import Iterator

GIB = 2**30
ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}


@pytest.fixture
def token() -> str:
    return secrets.token_hex(16)


@pytest.fixture(params=["isolated", "not isolated"])
def nursery(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Nursery]:
    monkeypatch.setenv("IVHL_PID_NAMESPACE", str(int(request.param == "isolated")))
    # Importing torch takes seconds and is not tested here.
    (tmp_path / "torch.py").write_text("raise ImportError('not here')")
    with closing(
        Nursery(environment=environment(tmp_path), output=tmp_path / "nursery.txt")
    ) as started:
        started.wait()
        yield started


def run(
    nursery: Nursery,
    tmp_path: Path,
    code: str,
    *,
    deadline_s: float = 30,
    memory_limit: int = GIB,
    name: str = "subject",
) -> Ending:
    """Run a case whose workloads are a module of this code."""
    (tmp_path / f"{name}.py").write_text(code)
    job = Job(
        project="demo",
        workloads=f"{name}:WORKLOADS",
        workload="w",
        size="small",
        variant="v",
        effort=Effort(),
        stage="compile",
        journal=str(tmp_path / f"{name}.jsonl"),
    )
    return nursery.run(
        ["case", json.dumps(asdict(job))],
        environment=environment(tmp_path) | {"WHO": name},
        output=tmp_path / f"{name}.txt",
        deadline_s=deadline_s,
        memory_limit=memory_limit,
    )


def test_a_case_has_its_own_environment_output_journal_and_group(
    nursery: Nursery, tmp_path: Path
) -> None:
    code = "import os; print(os.environ['WHO'], os.getpid() == os.getpgrp(), os.read(0, 1))"
    for name in ("first", "second"):
        ending = run(nursery, tmp_path, code, name=name)
        assert (ending.how, ending.code) == ("exit", 0)
        assert tail(tmp_path / f"{name}.txt") == f"{name} True b''"
        phase, findings = read_journal(tmp_path / f"{name}.jsonl")
        assert phase == "import"
        assert "WORKLOADS" in findings["failure"]["message"]


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL", "SIGABRT"])
def test_a_signal_is_named_and_the_next_case_runs(
    nursery: Nursery, tmp_path: Path, name: str
) -> None:
    ending = run(nursery, tmp_path, f"import os, signal; os.kill(os.getpid(), signal.{name})")
    assert (ending.how, ending.signal_name) == ("signal", name)
    # Not by os._exit, which declarations may not call.
    ends = "import ctypes; ctypes.CDLL(None)._exit(3)"
    assert run(nursery, tmp_path, ends, name="other").code == 3


@pytest.mark.parametrize("leaves", ["daemon", "bomb"])
@pytest.mark.parametrize(
    ("then", "how"),
    [("", "exit"), ("time.sleep(60)", "deadline"), ("os.kill(os.getpid(), 9)", "signal")],
)
def test_nothing_outlives_its_case_however_that_ends(  # noqa: PLR0917  (fixtures)
    nursery: Nursery, tmp_path: Path, token: str, leaves: str, then: str, how: str
) -> None:
    # Started while the declarations are imported, before anything of the case is measured.
    deadline_s = 3 if how == "deadline" else 60
    code = f"{STARTS}{leaves}({token!r})\n{then}"
    assert run(nursery, tmp_path, code, deadline_s=deadline_s).how == how
    assert alive(token) == []
    assert run(nursery, tmp_path, "", name="next").how == "exit"


@pytest.mark.parametrize(
    "stop",
    [
        "os.kill(os.getppid(), signal.SIGSTOP)",
        "signal_ancestors({}, signal.SIGSTOP)",
    ],
)
def test_a_case_that_stops_its_parents_ends_as_it_does(
    nursery: Nursery, tmp_path: Path, token: str, stop: str
) -> None:
    code = f"{STARTS}daemon({token!r})\n{stop.format(os.getpid())}\n"
    ending = run(nursery, tmp_path, f"{code}os.kill(os.getpid(), signal.SIGSEGV)")
    assert (ending.how, ending.signal_name) == ("signal", "SIGSEGV")
    assert run(nursery, tmp_path, f"{code}time.sleep(60)", deadline_s=3).how == "deadline"
    assert run(nursery, tmp_path, "", name="next").how == "exit"
    assert alive(token) == []


def test_a_case_that_keeps_its_parent_stopped_ends_soon_after_its_deadline(
    nursery: Nursery, tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ivhl.measure.process.GRACE_S", 2.0)
    code = f"{STARTS}daemon({token!r})\nkeep_stopped({token!r}, os.getppid())\n"
    assert run(nursery, tmp_path, f"{code}time.sleep(60)", deadline_s=3).how == "deadline"
    assert alive(token) == []


@pytest.mark.parametrize("whom", ["os.getpid()", "0"])
def test_a_case_that_stops_itself_meets_its_deadline(
    nursery: Nursery, tmp_path: Path, token: str, whom: str
) -> None:
    code = f"{STARTS}daemon({token!r})\nos.kill({whom}, signal.SIGSTOP)"
    assert run(nursery, tmp_path, code, deadline_s=3).how == "deadline"
    assert alive(token) == []
    assert run(nursery, tmp_path, "", name="next").how == "exit"


def test_a_nursery_that_does_not_report_the_end_of_a_case_is_closed(
    nursery: Nursery, tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ivhl.measure.process.GRACE_S", 2.0)
    # A debugger, which the case starts, holds it: SIGCONT does not help.
    holds = (
        "import ctypes, os, signal, sys\npid = int(sys.argv[2])\nif os.fork() == 0:\n"
        "    libc = ctypes.CDLL(None)\n    libc.ptrace(16, pid, None, None)\n"
        "    os.setsid()\n    signal.pause()\n"
    )
    code = f"{STARTS}start({holds!r}, {token!r}, str(os.getppid()))\ntime.sleep(60)"
    ending = run(nursery, tmp_path, code, deadline_s=3)
    assert ending.how == "deadline"
    assert alive(token) == []


def test_exceeding_the_memory_limit_kills_the_case(nursery: Nursery, tmp_path: Path) -> None:
    code = "import time; x = bytearray(400 << 20); time.sleep(60)"
    ending = run(nursery, tmp_path, code, memory_limit=200 << 20)
    assert ending.how == "memory"
    assert ending.peak_bytes > 200 << 20


@pytest.mark.parametrize("who", ["os.kill(os.getppid(), 9)", "signal_ancestors({}, 9)"])
def test_a_case_ends_with_its_nursery_and_run_raises(
    nursery: Nursery, tmp_path: Path, token: str, who: str
) -> None:
    code = f"{STARTS}daemon({token!r})\n{who.format(os.getpid())}\ntime.sleep(60)"
    with pytest.raises(NurseryError, match="does not answer"):
        run(nursery, tmp_path, code)
    nursery.close()
    assert alive(token) == []
    with pytest.raises(NurseryError, match="does not accept orders"):
        run(nursery, tmp_path, "", name="next")


@pytest.mark.parametrize("isolate", ["0", "1"])
@pytest.mark.parametrize("phase", ["importing", "idle", "running"])
def test_all_of_a_nursery_ends_with_its_owner(
    tmp_path: Path, token: str, phase: str, isolate: str
) -> None:
    leaves = f"{STARTS}daemon({token!r})\n"
    (tmp_path / "torch.py").write_text(
        leaves + ("time.sleep(60)" if phase == "importing" else "raise ImportError('not here')")
    )
    (tmp_path / "subject.py").write_text(f"{leaves}time.sleep(60)")
    code = (
        "import os, pathlib, time\n"
        "from ivhl.measure.process import Nursery\n"
        "nursery = Nursery(environment=os.environ, output=pathlib.Path('nursery.txt'))\n"
        "nursery.wait()\n"
    )
    if phase == "running":
        job = Job(
            project="demo", workloads="subject:WORKLOADS", workload="w", size="small",
            variant="v", effort=Effort(), stage="compile", journal=str(tmp_path / "j.jsonl"),
        )  # fmt: skip
        code += (
            f"nursery.run(['case', {json.dumps(asdict(job))!r}], environment=os.environ,"
            " output=pathlib.Path('out.txt'), deadline_s=600, memory_limit=1 << 30)\n"
        )
    with subprocess.Popen(
        [sys.executable, "-c", f"{code}time.sleep(60)"],
        env=environment(tmp_path) | {"IVHL_PID_NAMESPACE": isolate},
        cwd=tmp_path,
    ) as owner:
        appears(token, 2 if phase == "running" else 1)
        owner.kill()
    assert ends(token)


def test_a_second_thread_is_refused(tmp_path: Path) -> None:
    package = tmp_path / "torch" / "_inductor"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").write_text("")
    (package / "compile_fx.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    )
    with (
        closing(
            Nursery(environment=environment(tmp_path), output=tmp_path / "nursery.txt")
        ) as started,
        pytest.raises(NurseryError, match="2 threads"),
    ):
        started.wait()


@pytest.mark.parametrize("asked", [False, True])
def test_a_nursery_for_a_gpu_compiles_nothing_and_has_not_asked_the_driver(
    tmp_path: Path, *, asked: bool
) -> None:
    package = tmp_path / "torch" / "_inductor"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").write_text("")
    (package / "compile_fx.py").write_text("import torch.cuda")
    (package.parent / "cuda.py").write_text(f"def _is_in_bad_fork(): return {asked}")
    with closing(
        Nursery(environment=environment(tmp_path), output=tmp_path / "nursery.txt", device="cuda")
    ) as started:
        if asked:
            with pytest.raises(NurseryError, match="CUDA is in use"):
                started.wait()
            return
        started.wait()
        compiled = "import torch, sys\nprint('compile' in dir(torch), flush=True)\n1 / 0"
        run(started, tmp_path, compiled)
        assert tail(tmp_path / "subject.txt").startswith("False")


def test_closing_a_nursery_ends_all_waits(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("import time\ntime.sleep(60)")
    nursery = Nursery(environment=environment(tmp_path), output=tmp_path / "nursery.txt")
    closer = threading.Timer(0.5, nursery.close)
    closer.start()
    began = time.monotonic()
    with pytest.raises(NurseryError):
        nursery.wait()
    closer.join()
    assert time.monotonic() - began < 30
    assert nursery.tree.process.returncode is not None
    with pytest.raises(NurseryError, match="closed"):
        nursery.wait()
    nursery.close()
