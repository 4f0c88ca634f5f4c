"""All processes of a failed group are killed, and ``Ending`` reports how it ended."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from ivhl.measure.launcher import read_journal
from ivhl.measure.process import Ending, run_group, tail

GIB = 2**30


def run(code: str, tmp_path: Path, *, deadline_s: float = 30, memory_limit: int = GIB) -> Ending:
    return run_group(
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


def test_workers_left_behind_are_killed_and_do_not_delay_the_run(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    child = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    code = (
        f"import os, subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        f"while not os.path.exists({str(pid)!r}) or not open({str(pid)!r}).read():"
        " time.sleep(0.01)"
    )
    ending = run(code, tmp_path)
    assert (ending.how, ending.code) == ("exit", 0)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if has_ended(int(pid.read_text())):
            return
        time.sleep(0.05)
    pytest.fail("the worker is still there")


def test_a_process_that_left_the_group_is_killed_at_the_deadline(tmp_path: Path) -> None:
    child = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    code = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)\n"
        "time.sleep(60)"
    )
    assert run(code, tmp_path, deadline_s=5).how == "deadline"
    pid = int(tail(tmp_path / "output.txt"))
    ends = time.monotonic() + 10
    while not has_ended(pid) and time.monotonic() < ends:
        time.sleep(0.05)
    assert has_ended(pid)


def has_ended(pid: int) -> bool:
    """Return whether a process has ended; a zombie counts, since a container may not reap it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except FileNotFoundError:
        return True
    return "\nState:\tZ" in status


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
