"""Tell wrong outputs from outputs that rounding decides, where a function jumps.

Two candidates of an argmax tie, a number lies beside a threshold: then honest compiled code takes
the other one, and its output is off by a whole jump. No tolerance can allow that and still refuse a
wrong index. So the same code is run again on inputs that are rounded a little more. What an element
becomes in one of these *looks* is right there, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ivhl.measure.accuracy import apart, as_real, is_rounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

# Roundings by which the inputs of the looks are moved, in turns. Compiled code rounds otherwise a
# few times; more would also allow what an ill-conditioned function does without a jump.
FURTHER = (1, 2, 4, 8)
# A tie that is closer than eight roundings shows in about every second look that moves inputs so
# far. The only one of a draw may be wider: of 3,000 draws of a vector quantisation, 27 showed no
# jump in 16 looks, and one needed 65.
MOST_LOOKS = 128
# Seconds after which no more looks are made.
LOOKS_S = 20.0
# A look explains an element if it leaves at most this fraction of what the element was off. What it
# leaves is judged like any other error.
LEFT = 0.25


class Jumps:
    """The elements of outputs that are further off than rounding takes them, and what explains them.

    Args:
        outputs: What is judged.
        references: What it is judged by, with the same shapes.
        limits: For each output, how far an element may be off without a jump; integers may not.
    """

    def __init__(
        self, outputs: Sequence[Tensor], references: Sequence[Tensor], limits: Sequence[float]
    ) -> None:
        rows = zip(outputs, references, limits, strict=True)
        self._outputs = [_Suspects(*row) for row in rows]

    def look(self, seen: Sequence[Tensor]) -> None:
        """Compare with what the same code returned on other inputs, if that has the same shapes."""
        if len(seen) != len(self._outputs):
            return
        for one, tensor in zip(self._outputs, seen, strict=True):
            one.look(tensor)

    @property
    def settled(self) -> bool:
        """Whether nothing is left that a look would have to explain."""
        return all(bool(one.explained().all()) for one in self._outputs)

    def jumped(self) -> list[int]:
        """Return the numbers of the outputs of which a look explains an element."""
        return [n for n, one in enumerate(self._outputs) if bool(one.explained().any())]

    def without(self) -> list[Tensor]:
        """Return the outputs with the jumps taken out: only what a look left of them is off."""
        return [one.without() for one in self._outputs]


class _Suspects:
    """The elements of one output that are further from the reference than a limit."""

    def __init__(self, output: Tensor, reference: Tensor, limit: float) -> None:
        self._output = output
        self._whole = not is_rounded(output)
        self._values = as_real(output.detach().cpu())
        off = (self._values - as_real(reference.detach().cpu())).reshape(-1)
        far = apart(output, reference).reshape(-1)
        self._where = (far > (0.0 if self._whole else limit)).nonzero().squeeze(-1)
        self._off = off[self._where]
        self._left = self._off.clone()

    def look(self, seen: Tensor) -> None:
        if seen.shape != self._output.shape or seen.is_complex() != self._output.is_complex():
            return
        other = as_real(seen.detach().cpu()).reshape(-1)
        left = self._values.reshape(-1)[self._where] - other[self._where]
        self._left = torch.where(left.abs() < self._left.abs(), left, self._left)

    def explained(self) -> Tensor:
        near = self._left.abs() <= (0.0 if self._whole else LEFT * self._off.abs())
        return near & self._off.isfinite()

    def without(self) -> Tensor:
        explained = self.explained()
        if not bool(explained.any()):
            return self._output
        values = self._values.reshape(-1).clone()
        values[self._where[explained]] -= self._off[explained] - self._left[explained]
        values = values.view(self._values.shape)
        if self._output.is_complex():
            return torch.view_as_complex(values).to(self._output.dtype)
        return values.to(self._output.dtype)
