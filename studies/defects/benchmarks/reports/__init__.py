"""Public reports of the compiler as workloads; ``calls.py`` has what each of them does."""

from __future__ import annotations

from typing import Any, Final

from ivhl.workload import Variant, Workload

CALLS = "benchmarks.reports.calls"


def _report(number: int, name: str, *shapes: tuple[int, ...], **more: Any) -> Workload:  # noqa: ANN401
    """Return the workload of a report: a function of ``calls.py``, or a model if ``loss`` is given.

    Args:
        number: Of the issue in PyTorch's tracker.
        name: The function; of a model, the function that makes it without ``make_``.
        shapes: Of the inputs.
        more: Fields of the workload; ``inputs`` is the function that makes the inputs,
            ``dynamic`` a field of the variant.
    """
    inputs, dynamic = more.pop("inputs", "make_floats"), more.pop("dynamic", None)
    if more.pop("model", False):
        more["make_model"] = f"{CALLS}:make_{name}"
    else:
        more["eager"] = f"{CALLS}:{name}"
    return Workload(
        name=f"reports.{name}",
        version=1,
        title=f"Report {number}",
        sizes={"small": shapes},
        default_size="small",
        make_inputs=f"{CALLS}:{inputs}",
        variants=(Variant(name="compiled", dynamic=dynamic),),
        source=f"https://github.com/pytorch/pytorch/issues/{number}",
        **more,
    )


WORKLOADS: Final = (
    _report(183604, "same_twice", (5,), model=True),
    _report(180642, "adds_in_place", (5,), model=True),
    _report(168358, "greatest", (5,), model=True),
    _report(186799, "least_angle", (8, 33), model=True),
    _report(136263, "running_product", (8, 32, 500), model=True),
    _report(148073, "recurrence", (4,), model=True),
    _report(128319, "counting", (3, 4), model=True),
    _report(181366, "padded", (3,), model=True, passes="forward"),
    _report(169253, "noted", (3, 4), model=True),
    _report(136662, "accumulated", (2, 3)),
    _report(191308, "multiplied", (2, 1, 2), (2, 2, 2), inputs="make_bytes"),
    _report(190764, "wrapped", (2, 2), (2, 2), (2, 2), (2, 2), inputs="make_large"),
    _report(193581, "selected", (1, 2, 5, 6)),
    _report(174371, "overlapping", (2, 2, 10)),
    _report(143566, "shifted", (40,), inputs="make_shifts"),
    _report(185382, "stepped", (8,), (8,)),
    _report(138908, "doubled", (2, 32), dynamic=True),
    _report(149307, "found", (3,)),
    _report(150114, "condition", (2, 2)),
    _report(174172, "signed", (6,)),
    _report(172062, "product_gradient", (1, 100), (1, 100)),
    _report(146538, "merged", (64,)),
    _report(128944, "filtered", (64,), (64,)),
    _report(143756, "set_in_dict", (64,)),
    _report(177839, "logit_of_part", (2, 20), inputs="make_rates"),
    _report(178095, "eighth", (64,)),
    _report(185515, "seen_as_bytes", (2, 3)),
    _report(183771, "enlarged", (2, 5, 3, 2, 2), inputs="make_transposed"),
    _report(
        182225, "rotated", (1, 2, 7, 16), (1, 1, 7, 16), (1, 7, 16), (1, 7, 16),
        dtype="bfloat16", dynamic=True,
    ),
    _report(185337, "rounded", (4, 5)),
    _report(181568, "half_product", (2, 15, 32), (32, 17), (17,), dynamic=True),
    _report(110611, "logarithm", (1 << 20,), inputs="make_rates"),
    _report(154703, "mean", (1 << 27,), inputs="make_rates"),
    _report(145220, "all_true", (5, 6)),
    _report(177630, "mixed", (2, 3, 4), (2, 4, 3)),
    _report(171493, "scaled", (1024, 1)),
    _report(191821, "nested", (3,)),
    _report(197896, "counted", (3,)),
)  # fmt: skip
