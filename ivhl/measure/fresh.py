"""Call a variant on new data; it fails if it remembers results or compiles again."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any

from ivhl.measure.clocks import begin, since
from ivhl.measure.data import leaves_in
from ivhl.measure.draws import ShapesDifferError, check_alike, clone, fill, touch
from ivhl.measure.failures import CaseError, warn
from ivhl.measure.supervisor import living_descendants
from ivhl.measure.timing import time_call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ivhl.measure.compilation import VariantArm
    from ivhl.measure.eager import Begun
    from ivhl.measure.timing import Times

# Limit for the time of a call on new data over a call on data just seen, relative to eager's ratio.
REMEMBERS = 1.5
# The same limit for a call on data seen three times over a call in the timing.
REMEMBERS_LATER = 2.0
FRESH_CALLS = ("new", "copied", "touched", "same")
# Fewest and most draws of new data; between them, as many as fit into FRESH_S seconds.
FRESH_DRAWS = 3
MOST_FRESH_DRAWS = 15
FRESH_S = 0.3


class FreshCalls:
    """Calls eager and the variant on new data.

    Args:
        begun: What the phases before the compiler have made.
        source: Calls the variant's own source.
        variant: The compiled code.
        times: What the timing found.
    """

    def __init__(
        self,
        begun: Begun,
        source: Callable[[], Any],
        variant: VariantArm,
        times: Mapping[str, Times],
    ) -> None:
        self._setup, self._exact, self._data = begun.setup, begun.functions.exact, begun.data
        self._eager, self._anchors = begun.eager, begun.anchors
        self._source, self._times = source, times
        self._compiled, self._judge = variant.compiled, variant.judge

    def call(self) -> None:
        """Refuse a variant that is slower on new data than on data just seen.

        The data is the same within a block, so a variant that caches results computes only once.
        """
        if len(self._data.draws) == 1:
            return
        mark = self._compiled.watch.mark() if self._compiled.watch else {}
        found = None
        for first in (0, MOST_FRESH_DRAWS):  # twice: other load on the machine may look the same
            took = self._time_fresh_calls(first)
            found = None if took is None else self._remembering(took)
            if found is None:
                break
        self._compiled.note(self._setup.journal)
        self._refuse_a_fallback_on_new_data()
        if found is None:
            return
        if self._compiled.watch and (news := self._compiled.watch.since(mark)):
            raise CaseError(
                "recompiles",
                f"{self._compiled.watch.compiler_name} recompiles on new data: {news}",
            )
        raise CaseError(
            "remembers",
            f"a call on new data takes {found[0]:.2g} times as long as a call on data just seen "
            f"(eager: {found[1]:.2g}), so the times are those of remembered results",
        )

    def _refuse_a_fallback_on_new_data(self) -> None:
        """Refuse code that was compiled for the few draws of the timing, and for no other.

        Raises:
            CaseError: If Dynamo gave up recompiling only now: the times are those of data just seen.
        """
        watch = self._compiled.watch
        if watch is None or self._compiled.limits or not (reason := watch.fell_back()):
            return
        took = self._time_fresh_calls(2 * MOST_FRESH_DRAWS) or {}
        seconds = [median(took[arm]["new"]) for arm in took]
        speed = f"; there it is {seconds[0] / seconds[1]:.2f}x as fast as eager" if took else ""
        raise CaseError(watch.fell_back_as, f"on new data: {reason}{speed}")

    def _time_fresh_calls(self, first: int) -> dict[str, dict[str, list[float]]] | None:
        """Return the seconds of single calls by arm and by the change before the call.

        The changes: ``new``, new data; ``copied``, the same data copied in again; ``touched``, only
        the tensors' versions raised; ``same``, none that a function could see. ``None`` if the
        shapes of new data differ.
        """
        arms = {
            "eager": self._setup.timed(self._eager.call),
            "compiled": self._setup.timed(self._compiled.call),
        }
        took: dict[str, dict[str, list[float]]] = {a: {k: [] for k in FRESH_CALLS} for a in arms}
        live = self._data.inputs, self._data.variant_inputs
        decoys = clone(live)
        prepare_s = []
        outputs: dict[str, Any] = {}
        inputs: tuple[Any, ...] = ()
        workers = living_descendants()
        ends = time.perf_counter() + FRESH_S
        for number in range(first, first + MOST_FRESH_DRAWS):
            if number >= first + FRESH_DRAWS and time.perf_counter() > ends:
                break
            inputs = self._data.draw(self._setup.job.secret + number, self._data.draws[0])
            began = begin()
            prepared = self._data.prepared(inputs)
            prepare_s.append(since(began).cpu / 1e9)
            fresh = inputs, prepared
            try:
                check_alike(live, fresh)
            except ShapesDifferError as difference:
                warn(f"not called on new data: {difference}")
                return None
            for name in sorted(arms, reverse=bool(number % 2)):
                # One untimed call first, so that all timed calls find the same data in the caches.
                fill(live, fresh)
                self._data.use(number)
                arms[name]()
                for kind in FRESH_CALLS:
                    if kind in ("new", "copied"):
                        self._data.use(number)
                        fill(live, fresh)
                    else:
                        touch(live if kind == "touched" else decoys)
                    self._setup.synchronize()
                    block = time_call(arms[name], self._setup.clock, workers)
                    took[name][kind].append(block.seconds)
                    if kind == "new":
                        outputs[name] = block.output
        self._judge_fresh_calls(inputs, outputs, median(prepare_s))
        return took

    def _judge_fresh_calls(
        self, inputs: tuple[Any, ...], outputs: dict[str, Any], prepare_s: float
    ) -> None:
        self._setup.journal.enter("accuracy")
        began = begin()
        finished = self._data.detached(outputs["compiled"])
        finish_s = since(began).cpu / 1e9
        exact = self._exact.reference_of(inputs).tensors
        anchor = self._anchors.anchor_of(leaves_in(outputs["eager"]), inputs, exact)
        if self._setup.variant_dtype != self._setup.dtype:
            self._anchors.note_source(self._data.detached(self._source()), anchor)
        self._judge.judge(finished, anchor, "on new data, the")
        self._setup.journal.note(
            prepare_s=prepare_s if self._setup.case.variant.prepare else 0.0,
            finish_s=finish_s if self._setup.case.variant.finish else 0.0,
        )
        self._setup.journal.enter("timing")

    def _remembering(self, took: dict[str, dict[str, list[float]]]) -> tuple[float, float] | None:
        """Return by which factors compiled and eager are slower on new data, if compiled caches."""
        for more, less in (("new", "copied"), ("touched", "same")):
            eager, compiled = (ratios(took[arm][more], took[arm][less]) for arm in took)
            # Three of four calls must show it: a single one may have been interrupted.
            surely = compiled[len(compiled) // 4]
            if surely > REMEMBERS * max(median(eager), 1.0):
                return surely, median(eager)
        # A variant that starts caching after some calls is slow in these, but not in the timing.
        asking = min(time_call(nothing, self._setup.clock).seconds for _ in range(FRESH_DRAWS))
        later = {
            arm: (min(took[arm]["same"]) - asking) / median(self._times[arm].samples_s)
            for arm in took
        }
        if later["compiled"] > REMEMBERS_LATER * max(later["eager"], 1.0):
            return later["compiled"], later["eager"]
        return None


def nothing() -> None:
    """Do nothing: timing this gives the overhead of timing a call."""


def ratios(a: list[float], b: list[float]) -> list[float]:
    """Return the ratios of pairs, smallest first."""
    return sorted(x / y for x, y in zip(a, b, strict=True))
