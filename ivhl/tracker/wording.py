"""The words in which results are told to people. One place, so that all views say the same."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.records import FailureClass
    from ivhl.tracker.compat import Row, Status, Support

STATUS_WORDS: dict[Status, str] = {
    "works": "works",
    "slow": "slow",
    "wrong": "wrong",
    "unsupported": "unsupported",
    "unavailable": "unavailable",
    "failed": "failed",
    "not_run": "not run",
}

STATUS_MEANINGS: dict[Status, str] = {
    "works": "runs, agrees with the float64 reference, and is not slower than eager",
    "slow": "slower than eager, and 99 of 100 other runs would find so, too",
    "wrong": "the output is outside of the error budget",
    "unsupported": "this PyTorch says, or lacks what shows, that it does not support it here",
    "unavailable": "this PyTorch has no distribution for this Python",
    "failed": "no result; the failure class says why",
    "not_run": "no record yet",
}

CLASS_MEANINGS: dict[FailureClass, str] = {
    "support_gate": "torch.compile says that it does not support this Python",
    "unavailable": "there is no distribution of this PyTorch for this Python",
    "environment": "the environment could not be created from its lock",
    "build": "the project at this commit could not be built or installed",
    "import": "torch or the workload does not import",
    "inputs": "the inputs could not be made",
    "reference": "the float64 reference raised: the workload is at fault",
    "eager_failed": "the eager code itself failed: not the compiler's fault",
    "unsupported": "this PyTorch lacks the engine, or an operation in this precision",
    "graph_break": "the whole graph was asked for and Dynamo broke it",
    "backend_compile": "Inductor, Triton or the C++ compiler failed",
    "compile": "compiling, or a compiled call, raised",
    "recompile_limit": "Dynamo recompiled too often and gave up",
    "recompiles": "Dynamo went on compiling while the variant was timed",
    "not_compiled": "Dynamo skipped the code and silently ran it eagerly",
    "wrong": "the output is outside of the error budget",
    "side_effect": "it changes its inputs, or the process in which the other arms are timed",
    "remembers": "it gives back what it kept from an earlier call",
    "timeout": "it did not end in time",
    "crash": "the process was ended by a signal, or exited without a word",
    "out_of_memory": "memory ran out",
}

# What a variant is run with, by ``RunRecord.engine``; a newer engine is shown by its own name.
ENGINE_WORDS: dict[str, str] = {
    "compile": "torch.compile",
    "cuda-graph": "torch.compile, captured in a CUDA graph by hand",
    "aotinductor": "torch.export and AOTInductor",
    "torchscript": "TorchScript",
    "eager": "eager: nothing is compiled",
}

# What the first call of a variant is, by its engine.
FIRST_CALL_WORDS: dict[str, str] = {
    "compile": "cold compile, with one run",
    "cuda-graph": "cold compile and capture, with one run",
    "aotinductor": "export, cold compile and load, with one run",
    "torchscript": "trace, with the runs that warm it up",
    "eager": "first call",
}

# What Dynamo adds to every message; it pushes the reason out of sight.
_BOILERPLATE = (
    "Set TORCHDYNAMO_VERBOSE",
    "Set TORCH_LOGS",
    "You can suppress this exception",
    "import torch._dynamo",
    "torch._dynamo.config.suppress_errors",
)
_LONGEST_MESSAGE = 600

_KILO = 1024
_MILLI = 1e-3


def seconds(value: float) -> str:
    """Return a duration, e.g. ``6.4 s``, ``1.2 ms`` or ``46 µs``."""
    for factor, unit in ((1.0, "s"), (_MILLI, "ms"), (_MILLI**2, "µs")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value / _MILLI**3:.3g} ns"


def memory(value: int) -> str:
    """Return a number of bytes, e.g. ``48 MiB``."""
    size = float(value)
    for unit in ("B", "KiB", "MiB"):
        if size < _KILO:
            return f"{size:.3g} {unit}"
        size /= _KILO
    return f"{size:.3g} GiB"


def counted(number: int, noun: str) -> str:
    """Return e.g. ``1 cell`` or ``3 cells``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def headline(rows: Sequence[Row]) -> str:
    """Return in one line what the rows say, the most frequent status first."""
    if not rows:
        return "no cases"
    counts = Counter(row.status for row in rows).most_common()
    cells = {row.cell for row in rows}
    told = ", ".join(f"{number} {STATUS_WORDS[status]}" for status, number in counts)
    return f"{counted(len(rows), 'case')} in {counted(len(cells), 'cell')}: {told}"


def support_sentence(found: Support) -> str:
    """Return which releases can be used, in one line."""
    undecided = ", ".join(f"{torch} ({name.replace('_', ' ')})" for torch, name in found.undecided)
    return _decided(found) + (f"; undecided: {undecided}" if undecided else "")


def _decided(found: Support) -> str:
    bad = f"{found.last_bad} ({STATUS_WORDS[found.last_bad_status or 'failed']})"
    if found.first_good is None and found.last_bad is None:
        return "nothing decided yet"
    if found.first_good is None:
        return f"no good release; last bad {bad}"
    if found.last_bad is None:
        return f"good in every release tried, since {found.first_good}"
    if found.good_since is None:
        return f"first good {found.first_good}; bad again: {bad}"
    if found.good_since == found.first_good:
        return f"first good {found.first_good}; last bad {bad}"
    return f"first good {found.first_good}; last bad {bad}; good again since {found.good_since}"


_ENVIRONMENT: Final = re.compile(r'(?<=File ")[^"]*/(?:site|dist)-packages/')


def short_message(text: str) -> str:
    """Return an exception's message in one line, without the advice that Dynamo repeats.

    Where an environment lies is left out as well: one failure in three cells is one cause. A very
    long message keeps its beginning and its end: the reason is in one or the other.
    """
    lines = [_ENVIRONMENT.sub("", line).strip() for line in text.splitlines()]
    kept = [line for line in lines if line and not line.startswith(_BOILERPLATE)]
    line = " ".join(kept) or text.strip()
    if len(line) <= _LONGEST_MESSAGE:
        return line
    half = _LONGEST_MESSAGE // 2
    return f"{line[:half].rstrip()} […] {line[-half:].lstrip()}"
