"""Change the data and check the arms between the blocks of the timing."""

from __future__ import annotations

import gc
import random
from typing import TYPE_CHECKING

from ivhl.measure.failures import CaseError
from ivhl.measure.supervisor import living_descendants
from ivhl.measure.timing import Block, Bystander

if TYPE_CHECKING:
    from ivhl.measure.compilation import VariantArm
    from ivhl.measure.data import Data
    from ivhl.measure.eager import EagerArm
    from ivhl.measure.imports import Setup

# Most CPU time of other threads and processes during eager's blocks, as a fraction of eager's.
ELSEWHERE = 0.05
# Fraction of the blocks whose output is judged, besides the first, the middle and the last block.
LOOKS = 0.1


class Around(Bystander):
    """Changes the data before each block, and checks outputs, inputs and process after it.

    Args:
        setup: The process.
        data: The inputs.
        eager: The eager arm.
        variant: The compiled code.
    """

    def __init__(self, setup: Setup, data: Data, eager: EagerArm, variant: VariantArm) -> None:
        self._setup, self._data, self._eager, self._variant = setup, data, eager, variant
        # The number of the draw, in a list of one.
        self._draw = [0]
        self._look = random.Random(setup.job.seed)  # noqa: S311  (a choice, not a secret)
        self.descendants = living_descendants()

    def before(self, arm: str, number: int) -> None:
        """Copy in the draw of this round."""
        del arm
        self._draw[0] = self._data.use(number)
        self._setup.synchronize()

    def after(self, arm: str, number: int, rounds: int, block: Block) -> None:
        """Refuse an arm with wrong outputs, or one that affects the times of other arms."""
        setup, variant, draw = self._setup, self._variant, self._draw[0]
        looked = number in (0, rounds // 2, rounds - 1) or self._look.random() < LOOKS
        if arm in ("eager", "eager_again"):
            busy = block.elsewhere_s > ELSEWHERE * block.cpu_s and setup.job.effort.threads == 1
            if busy and setup.device.type == "cpu":
                raise CaseError(
                    "side_effect",
                    f"while eager was timed, other threads and processes used "
                    f"{block.elsewhere_s / block.cpu_s:.0%} of the CPU time",
                )
            if looked:
                self._data.refuse_changed_eager_inputs(draw)
            return
        # Read the outputs first: work left undone when the clock stopped must not finish unnoticed.
        outputs = self._data.detached(block.output) if arm == "compiled" and looked else None
        variant.state.refuse_changes(f"the arm {arm!r}")
        if gc.isenabled():
            raise CaseError("side_effect", f"the arm {arm!r} turns the garbage collector on")
        if outputs is not None:
            which = f"the output after round {number + 1} of {rounds}: its"
            variant.judge.judge(outputs, self._eager.anchors[draw], which)
            self._data.refuse_changed_inputs(draw)
        if number == rounds - 1 and (new := set(living_descendants()) - set(self.descendants)):
            raise CaseError(
                "side_effect", f"{len(new)} process(es) were started while arms were timed"
            )
