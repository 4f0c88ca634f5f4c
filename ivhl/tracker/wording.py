"""The texts for statuses, failure classes and units, shared by all tables and pages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

from ivhl.errors import counted as counted  # noqa: PLC0414  (one of the words here)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.records.record import (
        CompileFacts,
        Failure,
        FailureClass,
        Passes,
        Reference,
        RunRecord,
    )

Status = Literal[
    "works", "noisy", "slow", "wrong", "unsupported", "unavailable", "failed", "not_run"
]  # fmt: skip


STATUSES: tuple[Status, ...] = get_args(Status)
STATUS_WORDS = {status: str(status) for status in STATUSES}
STATUS_WORDS |= {"noisy": "too noisy", "not_run": "not run"}

# Of a record that says whether a case works, and not how fast.
NOT_TIMED: Final = "works, not timed"
QUICK_MEANING: Final = "few samples, or none: whether it works is known, and not how fast"

STATUS_MEANINGS: dict[Status, str] = {
    "works": "runs and agrees with its reference; was not shown to be slower than eager, and 1.3x "
    "slower would show",
    "noisy": "runs and agrees with its reference; too noisy to say whether it is slower than eager",
    "slow": "slower than eager; 99 of 100 other runs are expected to show this, too",
    "wrong": "the output exceeds the error budget",
    "unsupported": "this PyTorch release does not support this variant on this Python or device",
    "unavailable": "nothing to run: no distribution of this PyTorch for this Python, or the commit "
    "lacks the code that the workload measures",
    "failed": "no result; the failure class says why",
    "not_run": "no record yet",
}

CLASS_MEANINGS: dict[FailureClass, str] = {
    "support_gate": "torch.compile refuses to run on this Python",
    "unavailable": "no distribution of this PyTorch exists for this Python",
    "environment": "no cell could be made, its disk is full, or it has no C++ compiler",
    "build": "the project at this commit could not be built or installed",
    "absent": "this commit lacks the code that the workload measures",
    "import": "importing torch or the workload failed",
    "inputs": "making the inputs failed",
    "reference": "the float64 reference raised: the workload is at fault",
    "eager_failed": "the eager code failed: the compiler is not at fault",
    "unsupported": "this PyTorch lacks the engine, or an operation in this precision",
    "graph_break": "the variant requires a full graph, and Dynamo broke it",
    "backend_compile": "Inductor, Triton or the C++ compiler failed",
    "compile": "compiling, or a compiled call, raised",
    "recompile_limit": "Dynamo reached its recompile limit",
    "recompiles": "Dynamo recompiled while the variant was timed",
    "not_compiled": "Dynamo skipped the code and ran it eagerly, without an error",
    "wrong": "the output exceeds the error budget",
    "side_effect": "the variant changes its inputs, or the process that times the other arms",
    "remembers": "the variant returns a result that it kept from an earlier call",
    "timeout": "the process exceeded the time limit",
    "crash": "a signal ended the process, or it exited without a message",
    "out_of_memory": "memory ran out",
}

# A mark beside each verdict that does not rest on an independent reference, and what it means.
REFERENCE_MARKS: dict[Reference, str] = {
    "independent": "",
    "float64": "same code",
    "tolerance": "tolerance",
    "cosine": "cosine",
}
REFERENCE_MEANINGS: dict[Reference, str] = {
    "independent": "judged by an independent formula in float64",
    "float64": "judged by the same code in float64: an error of that code itself is not seen",
    "tolerance": "judged by eager's own outputs, within a tolerance: no float64 reference",
    "cosine": "judged by the angle to eager's own outputs, PyTorch's rule for whole models: errors "
    "of a tenth pass",
}
# What the interval beside the speedup of a case is, wherever one is shown.
ANOTHER_RUN: Final = "95 % interval of the speedup if it were run again"
UNCOMMITTED_MARK: Final = "uncommitted"
UNCOMMITTED_MEANING: Final = "the working tree differed from the commit"
EXPECTED_MARK: Final = "expected"
EXPECTED_MEANING: Final = "a known failure: envs/expectations.toml has the reason"
FIXED_MARK: Final = "fixed"
FIXED_MEANING: Final = "passes, and envs/expectations.toml still expects a failure"
PASSES_WORDS: dict[Passes, str] = {
    "forward": "forward pass without gradients",
    "backward": "forward and backward pass",
    "step": "forward and backward pass, step of the optimizer",
}

# Engine to its text, by ``RunRecord.engine``; an unknown, newer engine is shown by its own name.
ENGINE_WORDS: dict[str, str] = {
    "compile": "torch.compile",
    "cuda-graph": "torch.compile, captured in a CUDA graph by hand",
    "aotinductor": "torch.export and AOTInductor",
    "torchscript": "TorchScript",
    "hotpath": "hot paths of ivhl.hotpath",
    "eager": "eager: nothing is compiled",
}

# Engine to what the first call of a variant includes.
FIRST_CALL_WORDS: dict[str, str] = {
    "compile": "cold compile, with one run",
    "cuda-graph": "cold compile and capture, with one run",
    "aotinductor": "export, cold compile and load, with one run",
    "torchscript": "trace, with warm-up runs",
    "hotpath": "10 recorded runs, cold compile, three more runs",
    "eager": "first call",
}

# Advice that Dynamo adds to every message; it would push the reason out of sight.
# What PyTorch says of breaks that a user inserted, in messages about any break.
_OF_INSERTED_BREAKS = re.compile(r"user-inserted|graph_break\(\)", re.IGNORECASE)
_BOILERPLATE = (
    "Set TORCHDYNAMO_VERBOSE",
    "Set TORCH_LOGS",
    "You can suppress this exception",
    "import torch._dynamo",
    "torch._dynamo.config.suppress_errors",
)
# From here on an error of a graph shows the graph, and the source that it is made of.
_GRAPH = "\nWhile executing %"
_LONGEST_MESSAGE = 600
# Characters of a reason where it is one line among others; JSON and reports have all of it.
SHOWN_REASON: Final = 240

_KILO = 1024
_MILLI = 1e-3


def marks(reference: Reference | None, *, uncommitted: bool | None) -> tuple[str, ...]:
    """Return what a verdict rests on, if not on an independent reference and a commit."""
    weaker = REFERENCE_MARKS[reference or "independent"]
    return tuple(mark for mark in (weaker, UNCOMMITTED_MARK if uncommitted else "") if mark)


def marks_of(record: RunRecord | None) -> tuple[str, ...]:
    """Return the marks of a record's verdict, and what of its code compiling did not take in whole.

    A graph break, code that runs eagerly and a recompile are facts that the speedup hides.
    """
    if record is None:
        return ()
    counts = None if record.speedup is None else counts_of(record.compile)
    return marks_with(record.reference, counts, uncommitted=record.uncommitted)


def marks_with(
    reference: Reference | None, counts: DynamoCounts | None, *, uncommitted: bool | None
) -> tuple[str, ...]:
    """Return the marks of a verdict (``marks_of``); ``counts`` only if there is a speedup."""
    found = marks(reference, uncommitted=uncommitted)
    if counts is None:
        return found
    breaks, eager, total, again = counts
    return (
        *found,
        *([counted(breaks, "graph break")] if breaks else []),
        *([f"{eager} of {total} frames eager"] if eager else []),
        *([counted(again, "recompile")] if again else []),
    )


# What is looked for at the end of a mark of ``marks_of``, and what it means.
COMPILING_MEANINGS: dict[str, str] = {
    "graph break": "Dynamo ended a graph and let Python run: its time is in the speedup",
    "frames eager": "functions that Dynamo saw and did not compile",
    "recompile": "the same code was compiled again, before it was timed",
}


class DynamoCounts(NamedTuple):
    """What Dynamo counted while it compiled a case, of all causes."""

    graph_breaks: int
    eager_frames: int
    frames_total: int | None
    recompiles: int


def counts_of(facts: CompileFacts | None) -> DynamoCounts | None:
    """Return what Dynamo counted; ``None`` where nothing was compiled."""
    if facts is None:
        return None
    breaks, again = (sum(c.count for c in some) for some in (facts.graph_breaks, facts.recompiles))
    return DynamoCounts(breaks, eager_frames(facts), facts.frames_total, again)


def eager_frames(facts: CompileFacts) -> int:
    """Return how many frames that Dynamo saw it did not compile; 0 if it does not say."""
    return (facts.frames_total or 0) - (facts.frames_ok or 0) if facts.frames_ok is not None else 0


def marked(text: str, record: RunRecord) -> str:
    """Return a text about a record with the marks of its verdict."""
    return " · ".join((text, *marks_of(record)))


_LONG = 1000.0  # from here on, a number of seconds has more digits than are meant


def seconds(value: float) -> str:
    """Return a duration, e.g. ``6.4 s``, ``1.2 ms``, ``46 µs`` or ``33.5 min``."""
    if value >= _LONG:
        return f"{value / 60:.3g} min" if value < 60 * _LONG else f"{value / 3600:.3g} h"
    for factor, unit in ((1.0, "s"), (_MILLI, "ms"), (_MILLI**2, "µs")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value / _MILLI**3:.3g} ns"


_PLAIN = (0.01, 10_000.0)  # between these, a factor is written without an exponent


def times(value: float) -> str:
    """Return a factor, e.g. ``2.31x``; far from 1 with an exponent, ``1.0e+08x``."""
    return f"{value:.2f}x" if _PLAIN[0] <= value < _PLAIN[1] else f"{value:.1e}x"


def memory(size: float) -> str:
    """Return a number of bytes, e.g. ``48 MiB``."""
    for unit in ("B", "KiB", "MiB"):
        if size < _KILO:
            return f"{size:.3g} {unit}"
        size /= _KILO
    return f"{size:.3g} GiB"


def some(names: Sequence[str], most: int, between: str = ", ") -> str:
    """Return names as a list, of which the first are named and the rest are counted."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def shortened(text: str, longest: int) -> str:
    """Return a text of at most so many characters; one that is cut ends with an ellipsis."""
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def shown_reason(text: str) -> str:
    """Return a reason as one line among others: of each of its parts, beginning and end."""
    return "; ".join(short_message(part, SHOWN_REASON) for part in text.split("; "))


_ENVIRONMENT: Final = re.compile(r'(?<=File ")[^"]*/(?:site|dist)-packages/')


def without_other_advice(text: str) -> str:
    """Return a message without advice on ``graph_break()``, unless its reason is a call of it."""
    reason, *lines = text.split("\n")
    if _OF_INSERTED_BREAKS.search(reason):
        return text
    return "\n".join([reason, *(one for one in lines if not _OF_INSERTED_BREAKS.search(one))])


def failed_as(failure: Failure) -> str:
    """Return the class of a failure and its message in one line."""
    return f"{failure.failure_class}: {short_message(failure.message)}".removesuffix(": ")


def short_message(text: str, longest: int = _LONGEST_MESSAGE) -> str:
    """Return an exception's message in one line, without Dynamo's standard advice and graphs.

    Also drops the paths of environments, so that the same failure in three cells is one cause. A
    longer message keeps its beginning and its end: one of them has the reason.

    Args:
        text: The message.
        longest: Characters to keep.
    """
    line = " ".join(lines_of(text)) or text.strip()
    if len(line) <= longest:
        return line
    half = longest // 2
    return f"{line[:half].rstrip()} […] {line[-half:].lstrip()}"


def lines_of(text: str) -> list[str]:
    """Return the lines of an exception's message without Dynamo's standard advice and graphs."""
    said = without_other_advice(text).partition(_GRAPH)[0]
    lines = (_ENVIRONMENT.sub("", line).strip() for line in said.splitlines())
    # Nor the marks below the lines of a traceback, which stand below nothing in one line.
    return [line for line in lines if line.strip("~^ ") and not line.startswith(_BOILERPLATE)]
