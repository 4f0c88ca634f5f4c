"""Public reports of the compiler: numbers, names and inputs, without torch and without ivhl."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicReport:
    """One report.

    Attributes:
        number: Of the issue in PyTorch's tracker.
        name: The function of ``calls.py``; of a model, the function that makes it without ``make_``.
        shapes: Shapes of the inputs.
        inputs: The function of ``calls.py`` that makes the inputs.
        model: Whether it is a model; a training step then.
        dynamic: ``dynamic=`` of ``torch.compile``.
    """

    number: int
    name: str
    shapes: tuple[tuple[int, ...], ...]
    inputs: str = "make_floats"
    model: bool = False
    dynamic: bool | None = None


def _of(
    number: int, name: str, *shapes: tuple[int, ...], inputs: str = "make_floats"
) -> PublicReport:
    return PublicReport(number=number, name=name, shapes=shapes, inputs=inputs)


def _model(number: int, name: str, *shapes: tuple[int, ...]) -> PublicReport:
    return PublicReport(number=number, name=name, shapes=shapes, model=True)


REPORTS: Final = (
    _of(110611, "logarithm", (1 << 20,), inputs="make_rates"),
    _model(128319, "counting", (3, 4)),
    _of(128944, "filtered", (64,), (64,)),
    _of(136662, "accumulated", (2, 3)),
    _of(143566, "shifted", (40,), inputs="make_shifts"),
    _of(143756, "set_in_dict", (64,)),
    _of(145220, "all_true", (5, 6)),
    _of(146538, "merged", (64,)),
    _of(150114, "condition", (2, 2)),
    _model(168358, "greatest", (5,)),
    _model(169253, "noted", (3, 4)),
    _of(174172, "signed", (6,)),
    _of(174371, "overlapping", (2, 2, 10)),
    _of(177630, "mixed", (2, 3, 4), (2, 4, 3)),
    _of(177839, "logit_of_part", (2, 20), inputs="make_rates"),
    _of(178095, "eighth", (64,)),
    _model(180642, "adds_in_place", (5,)),
    PublicReport(
        number=181568, name="half_product", shapes=((2, 15, 32), (32, 17), (17,)), dynamic=True
    ),
    _model(183604, "same_twice", (5,)),
    _of(183771, "enlarged", (2, 5, 3, 2, 2), inputs="make_transposed"),
    _of(185337, "rounded", (4, 5)),
    _of(185382, "stepped", (8,), (8,)),
    _of(185515, "seen_as_bytes", (2, 3)),
    _of(191308, "multiplied", (2, 1, 2), (2, 2, 2), inputs="make_bytes"),
    _of(197896, "counted", (3,)),
)
