"""Fork server: a process with the compiler imported and used forks the processes of cases.

Importing torch, Dynamo and Inductor takes 5 s. A first compile takes 10 to 20 s more in an empty
cache, for precompiled headers and for finding the vector instructions, and 1 to 7 s in a filled
one. Each of the three processes of a case would need that time; a nursery needs it once per run and
core. It has a single thread, so its fork equals a new process after the same steps. CUDA does not
survive a fork: for a GPU the nursery only imports, and each fork begins with CUDA and the throwaway,
3 s.

It reads orders as lines of JSON from standard input and answers on standard output: first
``{"threads": n}``, then ``{"status": n}`` for each order when its case and all that this started
have ended.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ivhl.measure.first_compile import use_compiler
from ivhl.measure.supervisor import adopt_orphans, end_descendants

if TYPE_CHECKING:
    from collections.abc import Callable


def main(argv: list[str]) -> int:
    """Serve orders until the pipe is closed; in a child, run the case.

    ``argv[1]`` is the device, ``argv[2]`` the module whose ``main`` runs a case.
    """
    run = importlib.import_module(argv[2]).main
    # A case that is killed cannot end what it started; its orphans become children of this process.
    adopt_orphans()
    answers = os.dup(sys.stdout.fileno())
    # What torch prints while it is imported must not be read as an answer.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # If torch or its compiler does not import, each case reports that itself.
    with suppress(Exception):
        importlib.import_module("torch._inductor.compile_fx")
        if argv[1] == "cpu":
            use_compiler()
    threads = len(list(Path("/proc/self/task").iterdir()))
    answer(answers, threads=threads if argv[1] == "cpu" or may_use_cuda() else 0)
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.close(answers)
            become(order, run)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        end_descendants()
        answer(answers, status=status)
    return 0


def may_use_cuda() -> bool:
    """Return whether a fork of this process can use CUDA: imports must not have asked the driver."""
    pid = os.fork()
    if pid == 0:
        bad = True
        with suppress(Exception):
            bad = importlib.import_module("torch.cuda")._is_in_bad_fork()  # noqa: SLF001
        os._exit(bad)
    return os.waitpid(pid, 0)[1] == 0


def become(order: dict[str, Any], run: Callable[[list[str]], NoReturn]) -> NoReturn:
    """Turn this fork into the process of a case: own group, environment and output file."""
    os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    sink = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(nothing, 0)
    for stream in (1, 2):
        os.dup2(sink, stream)
    os.environ.clear()
    os.environ.update(order["environment"])
    with suppress(Exception):
        # These caches hold paths in the nursery's folder.
        importlib.import_module("torch._inductor.utils").clear_inductor_caches()
    tempfile.tempdir = None
    if order["folder"]:
        os.chdir(order["folder"])
    run(order["arguments"])


def answer(pipe: int, **content: int) -> None:
    """Write an answer as a line of JSON, unbuffered."""
    os.write(pipe, json.dumps(content).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
