"""Nothing that a command starts outlives it, and ``Ending`` reports how it ended."""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ivhl.measure.launcher import read_journal
from ivhl.measure.process import Ending, ProcessTree, run_limited, run_tree, tail
from tests.builders.processes import HOPPER, STARTS, alive, appears, ends

GIB = 2**30
ROOT = Path(__file__).parents[2]


@pytest.fixture
def token() -> str:
    return secrets.token_hex(16)


@pytest.fixture(params=["isolated", "not isolated"])
def isolated(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether commands have a PID namespace: not where Linux forbids them."""
    monkeypatch.setenv("IVHL_PID_NAMESPACE", str(int(request.param == "isolated")))
    own = "import os; print(os.readlink('/proc/self/ns/pid'))"
    done = run_tree([sys.executable, "-c", own], stdout=subprocess.PIPE)
    return bool(done.stdout.strip() != str(Path("/proc/self/ns/pid").readlink()))


def run(code: str, tmp_path: Path, *, deadline_s: float = 30, memory_limit: int = GIB) -> Ending:
    return run_limited(
        [sys.executable, "-c", code],
        environment=dict(os.environ),
        output=tmp_path / "output.txt",
        deadline_s=deadline_s,
        memory_limit=memory_limit,
    )


def test_exit_status_0_is_an_exit(tmp_path: Path) -> None:
    ending = run("print('hello')", tmp_path)
    assert (ending.how, ending.code) == ("exit", 0)
    assert tail(tmp_path / "output.txt") == "hello"


def test_the_exit_status_is_returned(tmp_path: Path) -> None:
    assert run("raise SystemExit(3)", tmp_path).code == 3


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL", "SIGABRT"])
def test_a_signal_is_named(tmp_path: Path, name: str) -> None:
    ending = run(f"import os, signal; os.kill(os.getpid(), signal.{name})", tmp_path)
    assert (ending.how, ending.signal_name) == ("signal", name)


def test_a_process_with_endless_output_meets_its_deadline(tmp_path: Path) -> None:
    code = "import time\nwhile True: print('busy', flush=True); time.sleep(0.01)"
    ending = run(code, tmp_path, deadline_s=1)
    assert ending.how == "deadline"
    assert tail(tmp_path / "output.txt").endswith("busy")


@pytest.mark.parametrize(("code", "computes"), [("pass", True), ("time.sleep(1)", False)])
def test_a_killed_process_has_its_cpu_seconds(
    tmp_path: Path, code: str, *, computes: bool
) -> None:
    starts = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {loop(code)!r}])"
    ending = run(starts, tmp_path, deadline_s=3)
    assert ending.how == "deadline"
    assert (ending.cpu_s > 0.1 * ending.seconds) == computes


def loop(code: str) -> str:
    return f"import time\nwhile True: {code}"


def test_a_process_above_its_memory_limit_is_killed(tmp_path: Path) -> None:
    code = "import time; x = bytearray(400 << 20); time.sleep(60)"
    ending = run(code, tmp_path, memory_limit=200 << 20)
    assert ending.how == "memory"
    assert ending.peak_bytes > 200 << 20


def test_memory_of_children_counts(tmp_path: Path) -> None:
    child = "import time; x = bytearray(400 << 20); time.sleep(60)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    assert run(code, tmp_path, memory_limit=200 << 20).how == "memory"


def test_memory_that_forked_workers_share_counts_once(tmp_path: Path) -> None:
    code = (
        "import os, time\nx = bytearray(b'x') * (300 << 20)\n"
        "for _ in range(3):\n    if not os.fork():\n        time.sleep(60)\n"
        "time.sleep(1)"
    )
    assert run(code, tmp_path, memory_limit=600 << 20).how == "exit"
    assert run(code, tmp_path, memory_limit=200 << 20).how == "memory"


@pytest.mark.parametrize("leaves", ["daemon", "bomb"])
@pytest.mark.parametrize(
    ("then", "how"),
    [
        ("", "exit"),
        ("time.sleep(60)", "deadline"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "signal"),
        ("x = bytearray(1200 << 20); time.sleep(60)", "memory"),
    ],
)
@pytest.mark.usefixtures("isolated")
def test_nothing_outlives_a_command_however_that_ends(
    tmp_path: Path, token: str, leaves: str, then: str, how: str
) -> None:
    deadline_s = 3 if how == "deadline" else 60
    ending = run(f"{STARTS}{leaves}({token!r})\n{then}", tmp_path, deadline_s=deadline_s)
    assert ending.how == how
    assert alive(token) == []


@pytest.mark.usefixtures("isolated")
def test_a_command_that_stops_its_supervisors_ends_as_it_does(tmp_path: Path, token: str) -> None:
    stops = f"{STARTS}daemon({token!r})\nsignal_ancestors({os.getpid()}, signal.SIGSTOP)\n"
    ending = run(stops + "os.kill(os.getpid(), signal.SIGSEGV)", tmp_path)
    assert (ending.how, ending.signal_name) == ("signal", "SIGSEGV")
    assert alive(token) == []
    assert run(stops + "time.sleep(60)", tmp_path, deadline_s=3).how == "deadline"
    assert alive(token) == []


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize("whom", ["os.getpid()", "0"])
def test_a_command_that_stops_itself_continues(tmp_path: Path, token: str, whom: str) -> None:
    code = f"{STARTS}daemon({token!r})\nos.kill({whom}, signal.SIGSTOP)"
    assert run(code, tmp_path).how == "exit"
    assert alive(token) == []


def test_a_command_can_kill_its_supervisors_only_where_it_is_not_isolated(
    tmp_path: Path, token: str, *, isolated: bool
) -> None:
    kills = f"{STARTS}daemon({token!r})\nsignal_ancestors({os.getpid()}, signal.SIGKILL)\n"
    ending = run(f"{kills}time.sleep(60)", tmp_path, deadline_s=3)
    assert ending.how == ("deadline" if isolated else "signal")
    assert alive(token) == []


@pytest.mark.usefixtures("isolated")
def test_all_of_it_ends_when_the_caller_is_killed(token: str) -> None:
    code = f"{STARTS}daemon({token!r})\ntime.sleep(60)"
    caller = (
        "import sys\nfrom ivhl.measure.process import run_tree\n"
        f"run_tree([sys.executable, '-c', {code!r}, {token!r}])"
    )
    with subprocess.Popen([sys.executable, "-c", caller], cwd=ROOT) as process:
        appears(token, 2)
        process.kill()
    assert ends(token)


def test_code_that_holds_the_pipe_of_the_caller_ends_with_it(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a namespace, ``/proc`` has the descriptors of the caller."""
    monkeypatch.setenv("IVHL_PID_NAMESPACE", "0")
    code = f"{STARTS}hold_pipes(int(sys.argv[2]))\nstart_sleep({token!r})\ntime.sleep(60)"
    caller = (
        "import os, sys\nfrom ivhl.measure.process import run_tree\n"
        f"run_tree([sys.executable, '-c', {code!r}, {token!r}, str(os.getpid())])"
    )
    with subprocess.Popen([sys.executable, "-c", caller], cwd=ROOT) as process:
        appears(token, 2)
        process.kill()
    assert ends(token)


@pytest.mark.usefixtures("isolated")
def test_a_time_limit_ends_what_holds_the_pipe_as_well(token: str) -> None:
    code = f"{STARTS}start_sleep({token!r}); time.sleep(60)"
    with pytest.raises(subprocess.TimeoutExpired):
        run_tree([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=2)
    assert alive(token) == []
    done = run_tree(
        [sys.executable, "-c", "print(1); raise SystemExit(3)"], stdout=subprocess.PIPE
    )
    assert (done.returncode, done.stdout) == (3, "1\n")


def test_children_of_the_caller_that_a_command_did_not_start_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IVHL_PID_NAMESPACE", "0")
    sleep = ["sleep", "60"]
    with ProcessTree(sleep) as other, subprocess.Popen(sleep) as plain:
        code = f"{STARTS}signal_ancestors({os.getpid()}, signal.SIGKILL); time.sleep(60)"
        assert run(code, tmp_path).how == "signal"
        assert other.wait(0.1) is plain.poll() is None
        plain.kill()


def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    ending = run_limited(
        ["/no/such/program"],
        environment={},
        output=tmp_path / "output.txt",
        deadline_s=30,
        memory_limit=GIB,
    )
    assert (ending.how, ending.code) == ("exit", 127)
    assert tail(tmp_path / "output.txt") == "/no/such/program: No such file or directory"


def test_concurrent_namespaces_number_their_processes_differently(*, isolated: bool) -> None:
    code = "import os; print(os.getpid(), os.readlink('/proc/self'))"
    runs = [run_tree([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(4)]
    pids = [done.stdout.split() for done in runs]
    assert all(own == shown for own, shown in pids)
    assert len({own for own, _ in pids}) > 1 or not isolated


def test_the_callers_standard_input_is_not_read(tmp_path: Path) -> None:
    run("import sys; print(repr(sys.stdin.read()))", tmp_path)
    assert tail(tmp_path / "output.txt") == "''"


def test_a_tail_is_the_end_of_a_file_even_with_invalid_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "output.txt"
    path.write_bytes(b"a" * 10_000 + b"\xff end")
    assert tail(path, 10).endswith("end")
    assert tail(tmp_path / "missing.txt") == ""


def test_an_unknown_signal_has_a_number() -> None:
    ending = Ending(how="signal", code=200, seconds=0.0, peak_bytes=0)
    assert ending.signal_name == "signal 200"
    assert signal.Signals(9).name == "SIGKILL"


@pytest.mark.parametrize("kind", ["pipe", "link", "device", "folder", "missing"])
def test_what_the_code_under_test_put_in_place_of_a_journal_is_not_waited_for(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "journal.jsonl"
    (tmp_path / "other").write_text('{"phase": "timing"}')
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind != "missing":
        path.symlink_to("/dev/zero" if kind == "device" else tmp_path / "other")
    assert read_journal(path) == ("import", {})
    assert tail(path) == ""


def test_a_journal_is_read_up_to_a_limit_and_what_is_no_finding_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    lines = ["[]", "5", '"x"', '{"phase": [], "findings": []}', "[" * 100_000, '{"phase": "?"}']
    found = '{"phase": "timing", "findings": {"phase_s": {"a": "b"}, "compile": 5, "done": true}}'
    path.write_text("\n".join([*lines, found, '{"findings": {"late": 1}}']))
    assert read_journal(path) == ("timing", {"done": True, "late": 1})
    monkeypatch.setattr("ivhl.measure.launcher.LONGEST_JOURNAL", path.stat().st_size - 5)
    assert read_journal(path) == ("timing", {"done": True})


@pytest.mark.skipif(sys.platform != "linux", reason="adopts orphans on Linux only")
def test_a_process_that_starts_the_next_one_and_ends_is_ended(tmp_path: Path) -> None:
    (tmp_path / "hopper.py").write_text(HOPPER)
    code = (
        "import subprocess, sys, time\n"
        "from ivhl.measure.supervisor import adopt_orphans, end_descendants\n"
        "adopt_orphans()\n"
        "subprocess.run([sys.executable, '-I', '-S', 'hopper.py'], check=True)\n"
        "time.sleep(0.3)\n"
        "end_descendants()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    ) as process:
        assert process.wait(30) == 0
        # Each of them holds the pipe, and so it ends with the last one.
        pipe = process.stdout
        assert pipe is not None
        assert select.select([pipe], [], [], 2)[0]
