"""Random numbers: the same ones in float64, and agreement in law where they cannot be the same.

A float64 reference that draws in float64 gets other numbers than eager code in float32. So its draws
are made in eager's precision, from the same generator. Compiled code whose numbers cannot be made
equal to eager's is judged by statistics of many calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from ivhl.measure.accuracy import ROUNDINGS_BESIDE, ROUNDOFF, as_real, largest_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

# Calls of each arm. Two means of so many normal numbers differ by SIGMAS standard errors once in
# three million times (Student's t with 46 degrees of freedom).
CALLS: Final = 24
SIGMAS: Final = 6.0
_NARROWER: Final = {torch.float32: torch.complex64, torch.float64: torch.complex128}


class Drawing(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    """Notes whether random numbers are drawn, from a generator of the code's own, too."""

    drew = False

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401  (an operation)
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401  (what the operation returns)
        """Run an operation, and note whether it draws."""
        del types
        self.drew = self.drew or torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())
        return func(*args, **(kwargs or {}))


class DrawsIn(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    """Draws random numbers in a precision, and widens them to the one that is asked for.

    Args:
        dtype: Floating dtype of the draws.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._of = {torch.float64: dtype, torch.complex128: _NARROWER.get(dtype, torch.complex64)}

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401  (an operation)
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401  (what the operation returns)
        """Run an operation, in the narrower precision if it draws random numbers."""
        del types
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in getattr(func, "tags", ()):
            return func(*args, **kwargs)
        pairs: list[tuple[Tensor, Tensor]] = []
        asked: list[torch.dtype] = []

        def narrow(value: Any) -> Any:  # noqa: ANN401
            if isinstance(value, torch.dtype) and value in self._of:
                asked.append(value)
                return self._of[value]
            if isinstance(value, torch.Tensor) and value.dtype in self._of:
                pairs.append((value, value.to(self._of[value.dtype])))
                asked.append(value.dtype)
                return pairs[-1][1]
            return value

        def widen(value: Any) -> Any:  # noqa: ANN401
            for wide, narrowed in pairs:
                if value is narrowed:  # an operation in place returns what it was given
                    return wide
            known = isinstance(value, torch.Tensor) and asked and value.dtype in self._of.values()
            return value.to(asked[0]) if known else value

        given = tree_map(narrow, args), tree_map(narrow, kwargs)
        found = func(*given[0], **given[1])
        if func._schema.is_mutable:  # noqa: SLF001
            for wide, narrowed in pairs:
                wide.copy_(narrowed)
        return tree_map(widen, found)


def unlike(
    eager: Sequence[Sequence[Tensor]], other: Sequence[Sequence[Tensor]], tolerance: float
) -> tuple[int, str] | None:
    """Return the number of the first output whose law differs from eager's, and how.

    Compared are statistics that each call has one value of: the share of zeros (so the rate of a
    dropout), the share of elements far outside of what eager returns there, the mean, the root mean
    square, and the share outside at all (so the factor by which what is kept is scaled).

    Args:
        eager: Outputs of twice ``CALLS`` calls, each with random numbers of its own.
        other: Those of ``CALLS`` calls of compiled code.
        tolerance: How far mean and root mean square may differ anyway, as a fraction of the largest
            value.
    """
    before, beside = eager[: len(eager) // 2], eager[len(eager) // 2 :]
    for number in range(len(other[0])):
        known = torch.stack([as_real(call[number].detach().cpu()) for call in before])
        low, high = known.amin(0), known.amax(0)
        slack = tolerance * largest_of(known)
        unit = ROUNDOFF.get(str(before[0][number].dtype).removeprefix("torch."), 0.0)
        near = max(slack, ROUNDINGS_BESIDE * unit * largest_of(known))
        one, two = (
            torch.stack([_statistics(call[number], low, high, near, known[0]) for call in calls])
            for calls in (beside, other)
        )
        error = ((one.var(0) / len(one)) + (two.var(0) / len(two))).sqrt()
        apart = (one.mean(0) - two.mean(0)).abs()
        allowed = SIGMAS * error + torch.tensor([0.0, 0.0, slack, slack, 0.0], dtype=torch.float64)
        for which, name in enumerate(_NAMES):
            if not bool(apart[which] <= allowed[which]):
                mine, its = float(one[:, which].mean()), float(two[:, which].mean())
                return number, f"{name} is {its:.3g} over {len(two)} calls, eager's is {mine:.3g}"
    return None


_NAMES: Final = (
    "the share of zeros",
    "the share of values far from all of eager's",
    "the mean",
    "the root mean square",
    "the share of values outside of all of eager's",
)


def _statistics(output: Tensor, low: Tensor, high: Tensor, slack: float, usual: Tensor) -> Tensor:
    """Return the statistics of one call; an infinity that is usual there is like any number."""
    values = as_real(output.detach().cpu())
    if not values.numel():
        return torch.zeros(len(_NAMES), dtype=torch.float64)
    same = (values == usual) | (values.isnan() & usual.isnan())
    far, outside = (
        (~((values >= low - room) & (values <= high + room)) & ~same).double().mean()
        for room in (high - low + slack, slack)
    )
    values = values.masked_fill(~values.isfinite(), 0.0)
    zeros = (values == 0).double()
    return torch.stack([zeros.mean(), far, values.mean(), values.square().mean().sqrt(), outside])
