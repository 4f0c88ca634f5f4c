"""Forked processes end like started ones, and none outlives its parent."""

from __future__ import annotations

import json
import os
import signal
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

if TYPE_CHECKING:
    from collections.abc import Iterator

GIB = 2**30
ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
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
        parent=nursery.pid,
        skip_isa_check=False,
    )
    return nursery.run(
        ["case", json.dumps(asdict(job))],
        environment=environment(tmp_path) | {"WHO": name},
        output=tmp_path / f"{name}.txt",
        deadline_s=deadline_s,
        memory_limit=memory_limit,
    )


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def dies(pid: int, within_s: float = 5.0) -> bool:
    ends = time.monotonic() + within_s
    while is_alive(pid) and time.monotonic() < ends:
        time.sleep(0.05)
    return not is_alive(pid)


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


def test_a_deadline_kills_the_case_and_its_children(nursery: Nursery, tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "worker = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(worker.pid, flush=True)\n"
        "time.sleep(60)"
    )
    assert run(nursery, tmp_path, code, deadline_s=2).how == "deadline"
    assert dies(int(tail(tmp_path / "subject.txt")))


# As daemons are started: a session of its own, and its parent ends. Declarations may not fork, but
# they can start programs that do.
DAEMON = """
import os, subprocess, sys, time
subprocess.run([sys.executable, "-c", '''
import os, time
if os.fork() == 0:
    os.setsid()
    print(os.getpid(), flush=True)
    time.sleep(60)
time.sleep(0.5)
'''], check=True)
"""


@pytest.mark.parametrize(
    ("then", "how"),
    [("", "exit"), ("time.sleep(60)", "deadline"), ("os.kill(os.getpid(), 9)", "signal")],
)
def test_a_daemon_ends_with_its_case_however_that_ends(
    nursery: Nursery, tmp_path: Path, then: str, how: str
) -> None:
    # Started while the declarations are imported, before anything of the case is measured.
    deadline_s = 4 if how == "deadline" else 60
    assert run(nursery, tmp_path, DAEMON + then, deadline_s=deadline_s).how == how
    assert dies(int(tail(tmp_path / "subject.txt")))


def test_exceeding_the_memory_limit_kills_the_case(nursery: Nursery, tmp_path: Path) -> None:
    code = "import time; x = bytearray(400 << 20); time.sleep(60)"
    ending = run(nursery, tmp_path, code, memory_limit=200 << 20)
    assert ending.how == "memory"
    assert ending.peak_bytes > 200 << 20


def test_a_case_dies_with_its_nursery_and_run_raises(nursery: Nursery, tmp_path: Path) -> None:
    code = (
        "import os, signal, time\n"
        "print(os.getpid(), flush=True)\n"
        "os.kill(os.getppid(), signal.SIGKILL)\n"
        "time.sleep(60)"
    )
    with pytest.raises(NurseryError, match="does not answer"):
        run(nursery, tmp_path, code)
    assert dies(int(tail(tmp_path / "subject.txt")))
    with pytest.raises(NurseryError, match="does not accept orders"):
        run(nursery, tmp_path, "", name="next")


def test_a_nursery_dies_with_its_owner(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('not here')")
    code = (
        "import os, pathlib, time\n"
        "from ivhl.measure.process import Nursery\n"
        "nursery = Nursery(environment=os.environ, output=pathlib.Path('nursery.txt'))\n"
        "nursery.wait()\n"
        "print(nursery.pid, flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment(tmp_path),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert is_alive(pid)
        owner.send_signal(signal.SIGKILL)
    assert dies(pid)


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
    assert dies(nursery.pid)
    with pytest.raises(NurseryError, match="closed"):
        nursery.wait()
    nursery.close()
