"""Compile the variant, and judge its first calls."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ivhl.measure.clocks import begin, since
from ivhl.measure.data import leaves_in
from ivhl.measure.dynamo import Watch
from ivhl.measure.eager import share_memory
from ivhl.measure.failures import LIMIT_REACHED, CaseError, warn
from ivhl.measure.first_compile import use_compiler
from ivhl.measure.hotpaths import HotPaths
from ivhl.measure.imports import SEED
from ivhl.measure.leaves import leaves_of
from ivhl.measure.randomness import CALLS, unlike
from ivhl.measure.state import RANDOM_STATES, Unchanged
from ivhl.measure.supervisor import living_descendants
from ivhl.workload import DYNAMO_ENGINES, INDUCTOR_ENGINES, backend_of, uses_dynamo

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.measure.eager import Begun
    from ivhl.measure.imports import Setup
    from ivhl.measure.journal import Journal
    from ivhl.measure.judge import OutputJudge

# Dynamo recompiles at the second call if a size changed, and gives up after eight recompiles.
CALLS_BEFORE_TIMING = 12
# Modes that use CUDA graphs on a GPU.
GRAPH_MODES = frozenset({"reduce-overhead", "max-autotune"})
# Inductor of PyTorch 2.5 sets this when it loads its first kernel, linked with -ffast-math.
BY_INDUCTOR = frozenset({"torch.set_flush_denormal()"})


@dataclass(frozen=True, slots=True)
class Compiled:
    """Compiled code.

    Attributes:
        call: Calls it on the inputs of ``Data``.
        took_s: Seconds of compiling and the first call, by their names in the record.
        watch: Watches the compiler; ``None`` where nothing tells what it does.
        agrees: Whether Inductor was asked to draw the random numbers that eager draws.
        limits: Why it reached the recompile limit; empty if it did not.
    """

    call: Callable[[], Any]
    took_s: dict[str, float]
    watch: Watch | HotPaths | None
    agrees: bool
    limits: list[str]

    def note(self, journal: Journal) -> None:
        """Note the seconds of compiling, and what was compiled so far."""
        facts: dict[str, Any] = dict(self.took_s)
        counts = ("frames_total", "frames_ok", "graphs", "calls_captured")
        if self.watch is None:
            facts |= dict.fromkeys(counts) | {"graph_breaks": [], "recompiles": []}
        else:
            numbers = (*self.watch.frames(), *self.watch.graphs())
            facts |= dict(zip(counts, numbers, strict=True)) | {
                "graph_breaks": [asdict(b) for b in self.watch.graph_breaks()],
                "recompiles": [asdict(r) for r in self.watch.recompile_reasons()],
            }
        journal.note(compile=facts)

    def note_a_fallback(self) -> None:
        """Warn that a frame reached the recompile limit: from then on it runs eagerly.

        That is what a caller of torch.compile gets, too, so its time counts. A hot path that gave up
        did not compile.

        Raises:
            CaseError: If the engine has not compiled.
        """
        if self.watch is None or not (reason := self.watch.fell_back()):
            return
        if self.watch.fell_back_as != "recompile_limit":
            raise CaseError(self.watch.fell_back_as, reason)
        if not self.limits:
            self.limits.append(reason)
            warn(f"{LIMIT_REACHED}, from which on a frame runs eagerly: {reason}")


@dataclass(frozen=True, slots=True)
class VariantArm:
    """Compiled code whose first calls are right.

    Attributes:
        judge: Judges its outputs.
        state: The state of the process, which it must leave as it is.
    """

    compiled: Compiled
    judge: OutputJudge
    state: Unchanged


def torch_compiler(setup: Setup) -> Callable[..., Any]:
    """Return ``torch.compile`` with the settings of the variant."""
    variant = setup.case.variant
    arguments: dict[str, Any] = {"dynamic": variant.dynamic, "fullgraph": variant.fullgraph}
    if variant.mode != "default":
        arguments["mode"] = variant.mode
    if (backend := backend_of(variant.engine)) is not None:
        arguments["backend"] = backend

    def torch_compile(function: Callable[..., Any]) -> Callable[..., Any]:
        compiled: Callable[..., Any] = setup.torch.compile(function, **arguments)
        return compiled

    with_graphs = setup.device.type == "cuda" and variant.mode in GRAPH_MODES
    if with_graphs and variant.compiles == "parts":
        from ivhl.measure.engine import returning_copies  # noqa: PLC0415  (imports torch)

        return lambda function: returning_copies(torch_compile(function))
    return torch_compile


class Compilation:
    """Compiles the variant of a case.

    Args:
        begun: What the phases before have made.
        compiler: Is ``torch.compile`` with its settings.
    """

    def __init__(self, begun: Begun, compiler: Callable[..., Any]) -> None:
        self._setup, self._data, self._eager = begun.setup, begun.data, begun.eager
        self._subject, self._judge = begun.functions.subject, begun.judge
        self._compiler = compiler
        self._limits: list[str] = []

    def run(self) -> VariantArm:
        """Compile, and judge the first calls.

        What is wrong only because Inductor was told to draw eager's random numbers is compiled
        again without that.
        """
        compiled, outputs = self._compile(by_law=False)
        try:
            return self._judge_first_calls(compiled, outputs, self._judge)
        except CaseError as error:
            if error.failure_class != "wrong" or not compiled.agrees:
                raise
            wrong = error
        return self._judge_by_law(wrong)

    def _judge_by_law(self, wrong: CaseError) -> VariantArm:
        """Judge what draws its own random numbers by statistics of many calls."""
        from torch._inductor import config  # noqa: PLC0415

        config.fallback_random = False
        compiled, outputs = self._compile(by_law=True)
        self._setup.journal.enter("accuracy")
        because = f"with torch._inductor.config.fallback_random=True, which ivhl had set, {wrong}"
        if other := self._unlike_eager(compiled):
            raise CaseError("wrong", f"{other}, with random numbers of its own; {because}")
        self._setup.journal.note(accuracy=[])
        warn(f"compared by statistics of many calls, not by value: {because}")
        return self._judge_first_calls(compiled, outputs, self._judge.by_law_only())

    def _compile(self, *, by_law: bool) -> tuple[Compiled, Any]:
        """Compile and call once: cold in the stage ``compile``, else warm from its cache.

        Returns the compiled code, and the outputs of its first call.
        """
        job = self._setup.job
        self._setup.journal.enter("compile")
        from ivhl.measure.engine import compiler_of  # noqa: PLC0415  (imports what may be missing)

        engine = self._setup.case.variant.engine
        compiler = compiler_of(engine, self._compiler)
        watch: Watch | HotPaths | None = None
        warm_up = None
        if engine == "hotpath":
            warm_up = HotPaths().compiler
            watch = hot = HotPaths()
            compiler = hot.compiler
        # Other engines do not use Dynamo, which may not even support this Python.
        # One-time costs count as no compile time; a verdict has none, and may fail before them.
        if engine == "hotpath" or (engine in DYNAMO_ENGINES and job.effort.is_timed):
            use_compiler(device=job.effort.device, compiler=warm_up)
        if uses_dynamo(engine):
            if job.stage != "size":
                self._setup.torch._dynamo.reset()  # noqa: SLF001
            watch = Watch()
        self._data.use(0)
        agrees = self._let_random_numbers_agree(by_law=by_law)
        held = self._subject.variant_copy()
        self._setup.synchronize()
        allowed = RANDOM_STATES
        if engine in INDUCTOR_ENGINES:
            allowed |= BY_INDUCTOR
        state = Unchanged(self._subject.eager, allowed)
        workers = living_descendants()
        began = begin(workers)
        arm = self._subject.variant_arm(compiler, self._data.variant_inputs, held)
        call = self._subject.with_same_numbers(arm)
        outputs = getattr(call, "call", call)()
        self._setup.synchronize()
        took = since(began, living_descendants())
        outputs = getattr(call, "read", lambda found: found)(outputs)
        stage = "cold" if job.stage == "compile" else "warm"
        took_s = {f"{stage}_s": took.wall / 1e9, f"{stage}_cpu_s": took.cpu / 1e9}
        compiled = Compiled(call, took_s, watch, agrees=agrees, limits=self._limits)
        compiled.note(self._setup.journal)
        state.refuse_changes()
        return compiled, outputs

    def _let_random_numbers_agree(self, *, by_law: bool) -> bool:
        """Have Inductor draw the random numbers that eager draws, so that both can be compared.

        Returns whether it was asked to.
        """
        asked = self._subject.draws_random_numbers and not by_law
        asked = asked and self._setup.case.variant.engine in INDUCTOR_ENGINES
        if asked:
            from torch._inductor import config  # noqa: PLC0415

            config.fallback_random = True
            warn(
                "eager draws random numbers, so Inductor was told to draw the same ones "
                "(torch._inductor.config.fallback_random); its own are faster"
            )
        return asked

    def _unlike_eager(self, compiled: Compiled) -> str:
        """Return where random numbers of its own give outputs another law; empty if nowhere."""
        self._data.use(0)
        rows = []
        for number, arm in enumerate((self._eager.call, self._eager.call, compiled.call)):
            for call in range(CALLS):
                with self._subject.drawing_others(SEED + 1 + number * CALLS + call):
                    outputs = arm()
                is_ours = arm is compiled.call
                found = self._data.detached(outputs) if is_ours else leaves_in(outputs)
                rows.append(list(found.copied().tensors.values()))
        anchor = self._eager.anchors[0]
        names = self._setup.case.workload.outputs or tuple(anchor.eager.tensors)
        shapes = [tensor.shape for tensor in anchor.eager.tensors.values()]
        if any([tensor.shape for tensor in row] != shapes for row in rows):
            return "outputs have shapes that change from call to call"
        other = unlike(rows[: 2 * CALLS], rows[2 * CALLS :], self._setup.case.workload.tolerance)
        return "" if other is None else f"{names[other[0]]}: {other[1]}"

    def _judge_first_calls(self, compiled: Compiled, first: Any, judge: OutputJudge) -> VariantArm:  # noqa: ANN401
        """Judge the first calls, each on another draw, and check that the code was compiled."""
        self._setup.journal.enter("accuracy")
        anchors = self._eager.anchors
        judge.judge(self._data.detached(first), anchors[0], "the first call's")
        self._data.refuse_changed_inputs(0)
        places: list[list[tuple[Any, int]]] = []
        given = {t.data_ptr() for t in leaves_of(self._data.variant_inputs).tensors.values()}
        number = self._data.use(1)
        state = Unchanged(self._subject.eager, self._eager.allowed)
        for call in range(1, CALLS_BEFORE_TIMING):
            if call > 1:
                number = self._data.use(call)
            outputs = compiled.call()
            self._setup.synchronize()
            if call < 1 + len(anchors):  # each draw once; later calls only let Dynamo settle
                judge.judge(self._data.detached(outputs), anchors[number], f"call {call + 1}'s")
            self._data.refuse_changed_inputs(number)
            # Compilers may return an input for ``x * 1``; such an output has no memory of its own.
            found = leaves_in(outputs).tensors.values()
            places.append([(t, t.data_ptr()) for t in found if t.data_ptr() not in given])
            del places[:-2]
        # A CUDA graph reuses its output memory by design; what is read of a model is a copy.
        may_reuse = self._setup.case.variant.engine == "cuda-graph" or self._eager.reuses_memory
        may_reuse |= self._setup.device.type != "cpu" or self._subject.has_model
        if not may_reuse and share_memory(*places):
            raise CaseError(
                "side_effect",
                "each call writes its results into the memory of the previous call's results, which "
                "a caller may still use",
            )
        places.clear()
        compiled.note(self._setup.journal)
        compiled.note_a_fallback()
        if compiled.watch is not None and (reason := compiled.watch.not_compiled()):
            raise CaseError("not_compiled", reason)
        state.refuse_changes()
        return VariantArm(compiled, judge, state)
