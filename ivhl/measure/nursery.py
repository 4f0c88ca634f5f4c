"""A process that has imported the compiler and used it once, and from which cases are forked.

Importing torch, Dynamo and Inductor takes 5 s. A first compile in an empty cache takes 10 to 20 s
more, for precompiled headers and for finding the vector instructions, and 1 to 7 s where the cache
is there: three processes of every case would pay for that. This one pays once per run and core. It
has no second thread, so what is forked from it is what a fresh process is after the same steps. Not
for CUDA, which does not survive a fork.

It is told what to run by lines of JSON on standard input, and answers on standard output: first
``{"threads": n}``, then for each order ``{"pid": n}`` and, at its end, ``{"status": n}``.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from ivhl.measure import case


def main(argv: list[str]) -> int:
    """Serve the process ``argv[1]`` until it closes the pipe; in a child, be the case instead."""
    case.die_with(int(argv[1]))
    answers = os.dup(sys.stdout.fileno())
    # Whatever torch prints while it is imported must not be taken for an answer.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # Where torch or its compiler does not import, each case says so itself.
    with suppress(Exception):
        importlib.import_module("torch._inductor.compile_fx")
        case.use_compiler(skip_isa_check=False)
    say(answers, threads=len(list(Path("/proc/self/task").iterdir())))
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.close(answers)
            become(order)
        # Here and in the child, whichever comes first: the group is there when its number is told.
        with suppress(ProcessLookupError, PermissionError):
            os.setpgid(pid, pid)
        say(answers, pid=pid)
        say(answers, status=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return 0


def become(order: dict[str, Any]) -> NoReturn:
    """Be the process of a case: own group, own environment, output to its file."""
    with suppress(PermissionError):
        os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    sink = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(nothing, 0)
    for stream in (1, 2):
        os.dup2(sink, stream)
    os.environ.clear()
    os.environ.update(order["environment"])
    with suppress(Exception):
        # They hold paths in the folder of the nursery.
        importlib.import_module("torch._inductor.utils").clear_inductor_caches()
    case.main(order["arguments"])


def say(answers: int, **what: int) -> None:
    """Answer with a line of JSON, at once."""
    os.write(answers, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
