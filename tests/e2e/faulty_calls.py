"""Functions of the faulty workloads; needs torch."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

from tests.builders.processes import DAEMON

STEPS = [0]


def make_inputs(size: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Return one vector."""
    return (torch.rand(size, dtype=torch.float64, generator=generator),)


def changes_the_default_dtype(size: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Return one vector, and leave the process another one than it was."""
    torch.set_default_dtype(torch.float64)
    return make_inputs(size, generator)


def good(x: torch.Tensor) -> torch.Tensor:
    """Compute something that can be compiled."""
    return torch.sin(x) * 2 + x


def raises(*_: object) -> torch.Tensor:
    """Raise."""
    raise ValueError("this workload raises")


def off_by_one(x: torch.Tensor) -> torch.Tensor:
    """Return another result than the reference."""
    return good(x) + 1


def mutates(x: torch.Tensor) -> torch.Tensor:
    """Change the input."""
    y = good(x)
    x.add_(1)
    return y


def changes_threads(x: torch.Tensor) -> torch.Tensor:
    """Increase the number of threads."""
    torch.set_num_threads(2)
    return good(x)


def breaks_the_graph(x: torch.Tensor) -> torch.Tensor:
    """Break the graph in the middle."""
    y = torch.sin(x)
    torch._dynamo.graph_break()
    return y * 2 + x


def refuses_to_be_compiled(x: torch.Tensor) -> torch.Tensor:
    """Raise while traced: Dynamo then skips the frame and runs it eagerly without a message."""
    if torch.compiler.is_compiling():
        raise ValueError("not while compiling")
    # Not by calling ``good``, which would be compiled as a frame of its own.
    return torch.sin(x) * 2 + x


def wrong_at_another_size(x: torch.Tensor) -> torch.Tensor:
    """Return something else in compiled code where the size is not the first one."""
    other = x.shape[0] != 256
    return good(x) + 1 if other and torch.compiler.is_compiling() else good(x)


def wrong_when_compiled(x: torch.Tensor) -> torch.Tensor:
    """Be fast and wrong."""
    if torch.compiler.is_compiling():
        return x * 3 + 1e-3
    return good(x)


def other_shape_when_compiled(x: torch.Tensor) -> torch.Tensor:
    """Return one element too few."""
    return good(x)[1:] if torch.compiler.is_compiling() else good(x)


def nan_when_compiled(x: torch.Tensor) -> torch.Tensor:
    """Return NaN."""
    return good(x) / (x * 0) * 0 if torch.compiler.is_compiling() else good(x)


def recompiles_for_ever(x: torch.Tensor) -> torch.Tensor:
    """Depend on a number that changes at every call."""
    STEPS[0] += 1
    return torch.sin(x) * 2 + x + 0 * STEPS[0]


def guards_on_data(x: torch.Tensor) -> torch.Tensor:
    """Look at a number of the data, for each value of which Dynamo compiles the rest anew."""
    if x.abs().max().item() > 1e30:
        return x
    return good(x)


def segfaults_when_compiled(x: torch.Tensor) -> torch.Tensor:
    """Read address zero, but only when called through the compiler."""
    return crash(good(x)) if torch.compiler.is_compiling() else good(x)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # no torch where types are checked
def crash(y: torch.Tensor) -> torch.Tensor:
    """Read address zero."""
    ctypes.string_at(0)
    return y


def exits(x: torch.Tensor) -> torch.Tensor:
    """Exit without a message."""
    del x
    os._exit(7)


def leaves(x: torch.Tensor) -> torch.Tensor:
    """Exit as a script does."""
    del x
    sys.exit(3)


def killed(x: torch.Tensor) -> torch.Tensor:
    """Be killed from outside, as by ``kill -9``."""
    os.kill(os.getpid(), signal.SIGKILL)
    return x


def takes_memory(x: torch.Tensor) -> torch.Tensor:
    """Allocate memory until the process is killed."""
    held = []
    while True:
        held.append(torch.ones(64 << 20, dtype=x.dtype))


def hangs(x: torch.Tensor) -> torch.Tensor:
    """Never return, and print all the time."""
    while True:
        sys.stdout.write("still here\n")
        sys.stdout.flush()
        time.sleep(0.2)
    return x


def leaves_a_daemon(size: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Return one vector, and leave a daemon behind, marked by the folder of these tests."""
    command = [sys.executable, "-I", "-S", "-c", DAEMON, f"left by {Path(__file__).parents[2]}"]
    subprocess.run(command, env={}, check=True)
    return make_inputs(size, generator)


def leaves_a_daemon_and_hangs(x: torch.Tensor) -> torch.Tensor:
    """Leave a daemon behind, and hang."""
    leaves_a_daemon(1, torch.Generator())
    return hangs(x)


def stops_its_parents(x: torch.Tensor) -> torch.Tensor:
    """Stop what forked this process and what supervises that, and crash."""
    parent = os.getppid()
    status = Path(f"/proc/{parent}/status").read_text(encoding="utf-8")
    above = int(status.split("\nPPid:")[1].split()[0])
    if b"supervisor.py" in Path(f"/proc/{above}/cmdline").read_bytes():  # and not these tests
        os.kill(above, signal.SIGSTOP)
    os.kill(parent, signal.SIGSTOP)
    return crash(x)


def kills_its_parent(x: torch.Tensor) -> torch.Tensor:
    """Kill what forked this process, and hang."""
    os.kill(os.getppid(), signal.SIGKILL)
    return hangs(x)


def stops_itself(x: torch.Tensor) -> torch.Tensor:
    """Stop this process."""
    os.kill(os.getpid(), signal.SIGSTOP)
    return good(x)
