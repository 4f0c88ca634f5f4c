"""Save the float64 reference of each input set for the other processes of the case."""

from __future__ import annotations

import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ivhl.measure.accuracy import rounded, typical_of
from ivhl.measure.scales import has_few, has_own_scale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.measure.accuracy import Typical
    from ivhl.measure.exact import Exact
    from ivhl.measure.imports import Setup

    Moves = list[dict[str, float]]
    Tensors = list[dict[str, Any]]


def run_reference(
    setup: Setup, exact: Exact, draws: Sequence[tuple[Any, ...]]
) -> tuple[Tensors, Moves]:
    """Return the reference of each output by its path, and what ``Exact.moves_of`` does, by draw.

    Saved for the other processes of the case. They compute the references again if loading fails:
    the disk may be full, and PyTorch 2.5.1 cannot save on Python 3.13.
    """
    setup.journal.enter("reference")
    path = Path(setup.job.references)
    with suppress(Exception):
        tensors, moves = setup.torch.load(path, weights_only=True)
        return tensors, moves
    tensors = [exact.reference_of(inputs).tensors for inputs in draws]
    moves = [
        exact.moves_of(inputs, tensors[number], number) for number, inputs in enumerate(draws)
    ]
    with suppress(Exception):
        fresh = path.with_name(f"{path.name}.{setup.job.process}")
        setup.torch.save([tensors, moves], fresh)
        fresh.rename(path)
    return tensors, moves


def warn_of_rounded_references(setup: Setup, references: Tensors) -> None:
    """Warn of what the same code in float64 rounds all the same: it judges less sharply."""
    if setup.case.level == "float64" and (names := rounded(references[0])):
        warnings.warn(
            f"ivhl: the float64 reference rounds {', '.join(names[:8])}: the code casts to a "
            "precision of its own; with `reference`, another formula judges it",
            stacklevel=1,
        )


def typical_outputs(references: Tensors, moves: Moves) -> dict[int, Typical]:
    """Return what outputs of few elements are like on all draws, by the number of the output."""
    return {
        number: typical_of(
            [one[path] for one in references if path in one],
            [one[path] for one in moves if path in one],
            own=has_own_scale(path),
        )
        for number, (path, first) in enumerate(references[0].items())
        if has_few(first)
    }
