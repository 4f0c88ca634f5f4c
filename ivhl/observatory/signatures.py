"""Failures, wrong results and graph breaks by their cause, across libraries and releases.

Two records have the same signature if their status, phase and message are the same
(``tracker.support.messages``), and Dynamo's number of the break, where it is printed. A message of
Python's own, such as an ``AssertionError`` without words, says too little: there the innermost
function counts, too. A wrong result has no message: each case of a library is its own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

from packaging.version import Version

from ivhl.tracker.support.known import KnownCause, causes_in
from ivhl.tracker.support.messages import cause_of, dynamo_id, has_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ivhl.observatory.record import Failed, Observed
    from ivhl.records.record import Failure

CauseKind = Literal["wrong", "failed", "unsupported", "graph break"]
CAUSE_KINDS: Final[tuple[CauseKind, ...]] = get_args(CauseKind)  # as pages order them
Fault = Literal["PyTorch", "library", "environment", "not known"]

# Packages that do not fit each other, or are not there.
_UNFIT: Final = re.compile(
    r"No module named|undefined symbol|cannot open shared object file|Could not load this library"
    r"|Numpy is not available|infer dtype of numpy\.(?:float|int)|in the NumPy 2\.0 rel"
    r"|compiled using NumPy|numpy\.\w+ size changed|numpy\.core\.multiarray"
    r"|operator torchvision::|compiled with different .* versions|was built (?:for|against|with) "
)
# Nothing is known of the code: memory and time ran out, or the cell is not there.
_UNDECIDED: Final = frozenset(
    {"environment", "unavailable", "absent", "build", "timeout", "out_of_memory"}
)
# Before compiled code runs.
_LIBRARYS: Final = frozenset({"import", "inputs", "reference", "eager_failed"})
_EAGER: Final = frozenset({"import", "inputs", "reference", "eager"})
# Functions of torch that call a library's code: what is raised in it is not theirs.
_CALLS: Final = re.compile(
    r"torch/(?:_dynamo/(?:eval_frame|external_utils)|nn/modules/(?:module|container)"
    r"|utils/(?:_contextlib|checkpoint)|autograd/function)\.py:"
)
# Exceptions whose message is Python's own.
_PYTHONS: Final = re.compile(
    r"(?:builtins\.)?(?:Assertion|Attribute|Index|Key|Name|UnboundLocal|Recursion|Type|Value"
    r"|ZeroDivision|Overflow|StopIteration)(?:Error)?$"
)
# A library takes from torch what this release lacks.
_LACKS: Final = re.compile(r"module 'torch[\w.]*' has no attribute")
_LOST: Final = re.compile(r"(?:builtins\.)?(?:Attribute|Index|Key|Name|UnboundLocal|Type)Error$")
# How ``why`` begins for a call with a larger batch.
_LARGER: Final = re.compile(
    r"(?:wrong|failed) with inputs [^:]*: (?:[\w.]*(?:Error|Exception|Failed|Unsupported): )?"
)
_OUTPUT: Final = re.compile(r"(?<=call's )\w+")
_OWN_BREAK: Final = re.compile(
    r"`torch\.(?:_dynamo\.graph_break|_dynamo\.disable|compiler\.disable)"
)
_LONGEST_NAME: Final = 60


class Cause(NamedTuple):
    """What records with the same signature share.

    Attributes:
        kind: Status, or ``graph break``.
        phase: Phase of the failure; empty of a graph break, and of a call with a larger batch.
        text: Its message, without what varies; the library, too, where Dynamo names no exception.
        place: Innermost function or file where the message is Python's own; library and case of a
            wrong result.
        number: Dynamo's number, such as ``GB0124``, or empty.
    """

    kind: CauseKind
    phase: str
    text: str
    place: str
    number: str


@dataclass(frozen=True, slots=True)
class Signature:
    """A cause, and the records that show it.

    Attributes:
        name: Made of the cause alone, for an address: ``unsupported-tensor-item-call``.
        message: Of the newest release, as it was printed.
        frame: Its innermost function in torch, if known.
        fault: Whose fault it is.
        known: Known causes that describe it.
        records: Those that show it, by release.
    """

    name: str
    cause: Cause
    message: str
    frame: str
    fault: Fault
    known: tuple[KnownCause, ...]
    records: tuple[Observed, ...]

    @property
    def first(self) -> str:
        """The oldest release of PyTorch that shows it."""
        return self.records[0].torch

    @property
    def last(self) -> str:
        """The newest release of PyTorch that shows it."""
        return self.records[-1].torch

    @property
    def is_explained(self) -> bool:
        """Whether it is a graph break on which PyTorch has a page."""
        return self.cause.kind == "graph break" and self.cause.number != ""

    @property
    def libraries(self) -> tuple[str, ...]:
        """The libraries that show it."""
        return tuple(sorted({record.library for record in self.records}))


class _Occurrence(NamedTuple):
    """What one record shows of a cause."""

    record: Observed
    cause: Cause
    message: str
    fault: Fault


def signatures_of(records: Iterable[Observed]) -> tuple[Signature, ...]:
    """Return the signatures: wrong results first, then failures, then graph breaks.

    Among those of a kind, first the signature of most libraries, then of most records.
    """
    shown = [one for record in records for one in _shown_by(record)]
    numbers: dict[str, set[str]] = defaultdict(set)
    for one in shown:
        numbers[one.cause.text] |= {one.cause.number} - {""}
    groups: dict[Cause, list[_Occurrence]] = defaultdict(list)
    for one in shown:
        cause = one.cause
        known = numbers[cause.text]
        if not cause.number and len(known) == 1:  # cut off, or an older release prints none
            cause = cause._replace(number=next(iter(known)))
        groups[cause].append(one)
    for group in groups.values():
        group.sort(key=lambda one: (Version(one.record.torch), one.record.at))
    names = _names({cause: min(one.record.at for one in group) for cause, group in groups.items()})
    found = [_signature(names[cause], cause, group) for cause, group in groups.items()]
    found.sort(key=lambda one: (-len(one.libraries), -len(one.records), one.name))
    return tuple(sorted(found, key=lambda one: CAUSE_KINDS.index(one.cause.kind)))


def with_same_cause(
    signatures: Iterable[Signature], exception: str, message: str
) -> list[Signature]:
    """Return the signatures of what an exception says, whatever raised it.

    Args:
        signatures: All signatures of the observatory.
        exception: Type of the exception, with its module.
        message: Its message.
    """
    text = cause_of(message)
    kind = exception.rpartition(".")[2]
    texts = {text, f"{kind}: {text}", f"builtins.{kind}: {text}"} if text else set()
    number = dynamo_id(message)
    return [
        one for one in signatures if one.cause.text in texts and number in ("", one.cause.number)
    ]


def text_of(failure: Failed | Failure) -> str:
    """Return the message of a failure without what varies; Python's own with its exception."""
    text = cause_of(failure.message)
    if _PYTHONS.match(failure.exception):  # as what PyTorch puts around it prints it
        text = f"{failure.exception}: {text}"
    return text.rstrip(": ") or failure.exception


def fault_of(failure: Failed) -> Fault:
    """Return whose fault a failure is: what ran eagerly before is PyTorch's to compile.

    ``environment``: packages are missing or do not fit each other, or time or memory ran out.
    ``library``: its import, its eager code, or an exception that it raises itself.
    """
    if _UNFIT.search(failure.message) or failure.failure_class in _UNDECIDED:
        return "environment"
    is_killed = "SIGKILL" in failure.message  # as the kernel does when memory ends
    is_eager = failure.phase in _EAGER
    if failure.failure_class == "crash" and (is_killed or is_eager):
        return "environment"  # an extension for another torch
    is_librarys = is_eager and failure.failure_class == "side_effect"
    if failure.failure_class in _LIBRARYS or is_librarys:  # without an exception: eager is inexact
        return "library" if failure.exception else "not known"
    if _LACKS.search(failure.message):
        return "library"
    kind = failure.exception
    is_raised_in_torch = failure.frame and not _CALLS.match(failure.frame)
    if failure.failure_class != "compile" or kind.startswith("torch.") or is_raised_in_torch:
        return "PyTorch"
    # An operation raises RuntimeError below the code of a library; what eager code has, and Python
    # does not find in compiled code, the compiler has lost.
    is_lost = kind in ("RuntimeError", "") or _LOST.match(kind)
    return "PyTorch" if is_lost or not failure.where else "library"


def is_undecided(fault: Fault, phase: str) -> bool:
    """Return whether a failure says nothing of the compiler, which a library may refuse itself."""
    return fault != "PyTorch" and (fault != "library" or phase != "compile")


def _shown_by(record: Observed) -> Iterator[_Occurrence]:
    for one in record.graph_breaks:
        text = cause_of(one.text)
        fault: Fault = "library" if _OWN_BREAK.search(text) else "PyTorch"
        text = f"{text} in {record.library}" if text == "Observed exception" else text
        cause = Cause("graph break", "", text, "", dynamo_id(one.text))
        yield _Occurrence(record, cause, one.text, fault)
    if record.status not in CAUSE_KINDS:
        return
    failure = record.failure
    if failure is None:  # of a larger batch
        said = _LARGER.sub("", record.why)
        place = f"{record.library}: {record.case}" if record.status == "wrong" else ""
        cause = Cause(record.status, "", cause_of(said), place, dynamo_id(said))
        yield _Occurrence(record, cause, record.why, "PyTorch")
        return
    fault = fault_of(failure)
    text = text_of(failure)
    found = _OUTPUT.search(text) if record.status == "wrong" else None
    if found and not _PYTHONS.match(failure.exception):
        text = f"{found[0]} is wrong"  # how far off: other words in each release
    place = _place(record, failure, text, fault)
    cause = Cause(record.status, failure.phase, text, place, dynamo_id(failure.message))
    yield _Occurrence(record, cause, failure.message, fault)


def _place(record: Observed, failure: Failed, text: str, fault: Fault) -> str:
    """Return what tells two causes apart whose text is the same."""
    if record.status == "wrong":
        return f"{record.library}: {record.case}"
    file = failure.where.partition(":")[0]  # of the library, or of a package that it requires
    has_more = has_words(text.partition("Error: ")[2])
    own = file if file and has_more else f"{record.library}: {file}".rstrip(": ")
    if fault == "library":  # a name that torch lacks is missing for every library
        return "" if failure.exception in ("ImportError", "ModuleNotFoundError") else own
    if fault == "environment" or "target: " in failure.message:
        return ""
    if _CALLS.match(failure.frame):
        return own
    if has_more and text.startswith("AssertionError"):  # PyTorch's words: it moves the function
        return failure.frame.rpartition(":")[2]
    return failure.frame if _PYTHONS.match(text.partition(":")[0]) else ""


def _signature(name: str, cause: Cause, group: list[_Occurrence]) -> Signature:
    newest = group[-1]
    failure = newest.record.failure
    known = dict.fromkeys(found for one in group for found in _causes(one))
    return Signature(
        name,
        cause,
        newest.message,
        failure.frame if failure is not None and cause.kind != "graph break" else "",
        newest.fault,
        tuple(known),
        tuple({one.record.key: one.record for one in group}.values()),
    )


def _causes(one: _Occurrence) -> tuple[KnownCause, ...]:
    record = one.record
    failure = record.failure if one.cause.phase else None  # a graph break is none
    name = "wrong" if one.cause.kind == "wrong" else failure.failure_class if failure else ""
    return causes_in(record, name, one.message, (record.library, record.case, record.ask))


def _names(first_at: dict[Cause, str]) -> dict[Cause, str]:
    """Return a name for each cause; of two with the same words, the later one gets a number."""
    found: dict[str, Cause] = {}
    for cause in sorted(first_at, key=lambda one: (first_at[one], one)):
        text = f"{'wrong' if cause.kind == 'wrong' else cause.text} {cause.place}"
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", " ", text.replace("'", "")).lower()
        name = "-".join(re.findall(r"[a-z0-9]+", words)) or "without-message"
        if len(name) > _LONGEST_NAME:
            name = name[:_LONGEST_NAME].rpartition("-")[0]
        free = (f"{name}-{n}" if n > 1 else name for n in count(1))
        found[next(one for one in free if one not in found)] = cause
    return {cause: name for name, cause in found.items()}
