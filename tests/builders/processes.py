"""Programs that try to outlive what started them, and a look for those that did."""

from __future__ import annotations

import time
from pathlib import Path

# As daemons are started: two forks, a session, no files, environment or parent in common with what
# started it, and signals are ignored.
DAEMON = """
import os, signal, sys, time
for how in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
    try: signal.signal(how, signal.SIG_IGN)
    except OSError: pass
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.closerange(0, 256)
time.sleep(600)
"""
# Each of 200 processes starts another one when its child is killed.
BOMB = """
import os, signal, sys
left = 200
def run():
    global left
    signal.alarm(300)
    while left:
        if os.fork() == 0:
            left -= 1
            run()
        os.wait()
    signal.pause()
if os.fork() == 0: run()
"""
# Each process starts the next one and ends: no list of processes has the one that lives.
HOPPER = """
import os, time
until = time.monotonic() + 20
if os.fork(): os._exit(0)
os.setsid()
while time.monotonic() < until:
    if os.fork(): os._exit(0)
"""
# Stops a process again whenever that continues.
STOPPER = """
import os, signal, sys
if os.fork() == 0:
    signal.alarm(300)
    while True: os.kill(int(sys.argv[2]), signal.SIGSTOP)
"""
# Code of a case: what it may do to outlive its end, and to the processes between it and the run.
STARTS = f"""
import os, signal, subprocess, sys, time
def start(program, *words):
    subprocess.run([sys.executable, "-I", "-S", "-c", program, *words], env={{}}, check=True)
def start_sleep(token):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", token])
def daemon(token): start({DAEMON!r}, token)
def bomb(token):
    start({BOMB!r}, token)
    time.sleep(1)
def keep_stopped(token, pid): start({STOPPER!r}, token, str(pid))
def hold_pipes(below):
    pid = os.getppid()
    while pid != below:
        with open(f"/proc/{{pid}}/stat", encoding="utf-8") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
    for name in os.listdir(f"/proc/{{below}}/fd"):
        path = f"/proc/{{below}}/fd/{{name}}"
        if os.readlink(path).startswith("pipe:"): os.open(path, os.O_WRONLY)
def signal_ancestors(below, how):
    pid = os.getppid()
    while pid not in (0, below):
        os.kill(pid, how)
        with open(f"/proc/{{pid}}/stat", encoding="utf-8") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
"""


def alive(token: str) -> list[int]:
    """Return the processes with this argument that have not ended."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            state = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
        except OSError:
            continue
        if token.encode() in words and state not in "ZX":
            found.append(int(entry.name))
    return found


def ends(token: str, within_s: float = 20.0) -> bool:
    """Return whether all processes with this argument end; nothing may have to wait for long."""
    until = time.monotonic() + within_s
    while alive(token) and time.monotonic() < until:
        time.sleep(0.05)
    return not alive(token)


def appears(token: str, n: int = 1, within_s: float = 60.0) -> None:
    """Wait for so many processes with this argument."""
    until = time.monotonic() + within_s
    while len(alive(token)) < n:
        assert time.monotonic() < until, "what was to be left did not start"
        time.sleep(0.05)
