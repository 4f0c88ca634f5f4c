"""What ``ivhl try`` asks of a target: its name and its inputs, read without torch."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ivhl.measure.failures import CaseError

# Runs in the cell: ``python -m MODULE JOB``.
MODULE: Final = "ivhl.measure.target"
VARIABLE: Final = "IVHL_TARGET"
# Where its module is, if it is not installed.
FOLDER_VARIABLE: Final = "IVHL_TARGET_FOLDER"
NAME: Final = "target.call"
SIZE: Final = "given"
# Correct float32 code differs from eager code by less than this share of the largest value.
OFF: Final = 1e-3
# Precisions that an input can name; ``float`` is that of the target.
FLOATS: Final = ("double", "bfloat16", "half")
_INPUT: Final = re.compile(
    rf"\s*(?:(?P<dtype>float|{'|'.join(FLOATS)}|long|bool)\s+)?"
    r"(?P<shape>\d+(?:\s*,\s*\d+)*|scalar)(?:\s*<\s*(?P<below>\d+))?\s*"
)


class TargetError(CaseError):
    """A target that cannot be called as it is: the message says what to give."""

    def __init__(self, message: str) -> None:
        super().__init__("inputs", message)


class Target(NamedTuple):
    """What is tried.

    Attributes:
        module: Its module.
        expression: What to take from the module, e.g. ``softmax`` or ``Linear(3, 4)``.
        inputs: As ``--input`` has them, e.g. ``8,64`` or ``long 2,32 <1000``; empty to guess.
        step: Whether gradients are taken.
        larger: Whether a larger batch is tried, too, which is compiled once more.
    """

    module: str
    expression: str
    inputs: tuple[str, ...] = ()
    step: bool = False
    larger: bool = True


@dataclass(frozen=True, slots=True)
class TensorLike:
    """A tensor to draw.

    Attributes:
        shape: Its shape.
        dtype: ``float``, one of ``FLOATS``, ``long`` or ``bool``.
        low: Least value of integers; of floats, with ``high``, the
            range; ``None`` for normally distributed ones.
        high: Bound that is not reached.
    """

    shape: tuple[int, ...]
    dtype: str = "float"
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        """Return it as ``--input`` would have it."""
        shape = ",".join(map(str, self.shape)) or "scalar"
        below = f" <{self.high:g}" if self.dtype == "long" and self.high is not None else ""
        return f"{'' if self.dtype == 'float' else self.dtype + ' '}{shape}{below}"


def parse_input(text: str) -> TensorLike:
    """Return the tensor that ``--input`` describes.

    Raises:
        TargetError: If the text has another form.
    """
    found = _INPUT.fullmatch(text)
    if found is None:
        raise TargetError(
            f"--input {text!r}: must be a shape, e.g. 8,64, `long 2,32 <1000`, `bool 4`, `double 8`"
        )
    shape = () if found["shape"] == "scalar" else tuple(map(int, found["shape"].split(",")))
    below = float(found["below"]) if found["below"] else None
    return TensorLike(shape, found["dtype"] or "float", 0.0 if below else None, below)


def source_of(value: Any) -> str:  # noqa: ANN401  (an argument)
    """Return Python that draws a tensor as ``draw`` does, by torch's own seed; else the literal.

    Empty if it is neither.
    """
    if not isinstance(value, TensorLike):
        try:
            return repr(value) if ast.literal_eval(repr(value)) == value else ""
        except (SyntaxError, ValueError):
            return ""
    shape, low, high = value.shape, value.low, value.high
    if value.dtype == "bool":
        return f"torch.rand({shape}) > 0.5"
    if value.dtype == "long":
        first, end = int(low or 0), int(high or 10)
        return f"torch.randint({first}, {max(end, first + 1)}, {shape})"
    if low is None or high is None:
        return f"torch.randn({shape}, dtype=torch.float64)"
    unit = f"torch.rand({shape}, dtype=torch.float64)"
    return f"{low} + {high - low} * {unit}"
