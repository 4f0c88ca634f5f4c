"""One process of a case: compiles it or times it, and writes each finding to its journal.

The journal gets a line of JSON per finding as soon as it is known, so that a crash, a hang or a
kill loses only what was not yet measured. ``runner`` makes the record from the journals.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import sysconfig
import time
import warnings
from collections import Counter, defaultdict
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NoReturn

# Imported before any project code, which could replace the clocks.
from ivhl.measure.clocks import begin, since
from ivhl.measure.failures import (
    LIMIT_REACHED,
    CaseError,
    classify,
    exit_error,
    lacks,
    message_of,
    place_of,
    qualified_name,
)
from ivhl.measure.flags import FLAG_REFUSED, NoSuchFlagError, parse_flag, set_flag
from ivhl.measure.job import Job, choose_clock, read_job
from ivhl.measure.supervisor import adopt_orphans, living_descendants
from ivhl.measure.turns import Turns
from ivhl.workload import (
    DYNAMO_ENGINES,
    INDUCTOR_ENGINES,
    Case,
    ImportRefusedError,
    load_workloads,
    refusing_exits,
    resolve,
    select_cases,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ivhl.measure.accuracy import Scales, Typical
    from ivhl.measure.dynamo import Watch
    from ivhl.measure.hotpaths import HotPaths
    from ivhl.measure.leaves import Leaves
    from ivhl.measure.timing import Times
    from ivhl.records.record import FailureClass, OutputError, Phase

# Seed of the timed draws. The draws of ``_call_on_fresh_data`` have another seed in each run.
SEED = 1337
# Dynamo recompiles at the second call if a size changed, and gives up after eight recompiles.
CALLS_BEFORE_TIMING = 12
# Limit for eager's time in the rounds over its time before the variant ran. A case fails if, in
# every process, all blocks of one lie above all blocks of the other by this factor.
DISTURBED = 1.5
# Limit for the time of a call on new data over a call on data just seen, relative to eager's ratio.
REMEMBERS = 1.5
# The same limit for a call on data seen three times over a call in the timing.
REMEMBERS_LATER = 2.0
# Outputs in a record if the declaration does not name them.
MOST_LEAVES = 12
FRESH_CALLS = ("new", "copied", "touched", "same")
# Fewest and most draws of new data; between them, as many as fit into FRESH_S seconds.
FRESH_DRAWS = 3
MOST_FRESH_DRAWS = 15
FRESH_S = 0.3
# The first call of a compiled function may draw random numbers; every block resets these states.
RANDOM_STATES = frozenset({"the random state of torch", "the random state of random"})
# What the harness sets itself after the workload's modules are imported, and at each call.
SET_AGAIN = RANDOM_STATES | {"torch.get_num_threads()", "torch.get_num_interop_threads()"}
# Modes that use CUDA graphs on a GPU.
GRAPH_MODES = frozenset({"reduce-overhead", "max-autotune"})
# Inductor of PyTorch 2.5 sets this when it loads its first kernel, linked with -ffast-math.
BY_INDUCTOR = frozenset({"torch.set_flush_denormal()"})


class Journal:
    """Append-only findings; every line is on disk before the next step starts."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self.phase: Phase = "import"
        self._entered = time.perf_counter()
        self._seconds: dict[str, float] = defaultdict(float)

    def close(self) -> None:
        """Note how long each phase took, and close the file."""
        self.enter(self.phase)
        self.note(phase_s=dict(self._seconds))
        self._file.close()

    def enter(self, phase: Phase) -> None:
        """Note that a phase begins."""
        self.book(self.phase)
        self.phase = phase
        self._write({"phase": phase})

    def book(self, what: str) -> None:
        """Book the seconds since the last booking under a name."""
        now = time.perf_counter()
        self._seconds[what] += now - self._entered
        self._entered = now

    def note(self, **findings: Any) -> None:  # noqa: ANN401  (JSON)
        """Note findings under their names in the record."""
        self._write({"findings": findings})

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, allow_nan=False) + "\n")


def main(argv: list[str]) -> NoReturn:
    """Measure the case that ``argv[1]`` describes; exit with 0 even if the case fails."""
    job = read_job(argv[1])
    adopt_orphans()  # before any code of the project runs: it can start processes, too
    journal = Journal(Path(job.journal))
    seen: Counter[str] = Counter()

    def keep(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        text = " ".join(str(message).split())[:400]
        seen[f"{category.__name__}: {text}"] += 1

    warnings.showwarning = keep
    journal.enter("import")
    case = None
    try:
        (case,) = select_cases(
            load_workloads(job.workloads),
            names=[job.workload],
            size=job.size,
            variants=[job.variant],
            device=job.effort.device,
            mode=job.mode,
        )
        refuse_other_version(case, job)
        Measurement(job, case, journal).run()
    except Exception as error:  # noqa: BLE001  (every exception is a result of the case)
        journal.note(
            failure={
                "phase": journal.phase,
                "failure_class": class_of(error, journal.phase, job),
                "exception": "" if isinstance(error, CaseError) else qualified_name(error),
                "message": message_of(error),
                "where": place_of(error),
            }
        )
    if case is not None and job.stage == "compile":  # every function of the case has run
        journal.note(**sources_of(case, job))
    journal.note(
        warnings=[{"text": t, "count": n} for t, n in seen.most_common(50)],
        done=True,
    )
    journal.close()
    sys.stdout.flush()
    sys.stderr.flush()
    # All findings are on disk. A normal exit takes 2.6 s in a process that has compiled, and a crash
    # in a destructor does not belong to the measurement.
    os._exit(0)


class Measurement:
    """The phases of one process of a case, in order."""

    def __init__(self, job: Job, case: Case, journal: Journal) -> None:
        self.job = job
        self.case = case
        self.journal = journal
        self.watch: Watch | HotPaths | None = None
        self._turns = Turns(job.turns)

    def run(self) -> None:
        """Go through the phases of the job's stage; raises whatever a phase raises."""
        try:
            self._go()
        except SystemExit as error:  # it would end the process without a result
            raise exit_error(error, self.journal.phase) from error

    def _go(self) -> None:
        self._import_torch()
        if self.job.stage == "seed":
            self.journal.enter("compile")
            use_compiler(skip_isa_check=self.job.skip_isa_check, device=self.job.effort.device)
            self.journal.note(isa=picked_instructions())
            return
        before = self._snapshot()
        self._import_workload()
        self._make_inputs()
        self._warn_of_changes(before)
        self._try_eager()
        self._run_reference()
        self._warn_of_rounded_references()
        self._run_eager()
        if self.job.stage == "eager":
            self._time_eager("eager", "eager_again")
            return
        if self.job.stage != "compile":
            self._time_eager("eager_before")
        self._run_source()
        self._refuse_work_beside_the_call()
        self._compile_and_judge()
        if self.job.stage == "compile":
            return
        with self._alone():
            self._time()
            self._call_on_fresh_data()
        if self.job.process == 0:
            self._measure_memory()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Time alone on the machine, while the case's other processes wait."""
        self.journal.book(self.journal.phase)
        self._turns.take()
        self.journal.book("waiting")
        yield
        self.journal.book(self.journal.phase)
        self._turns.share()
        self.journal.book("waiting")

    def _import_torch(self) -> None:
        import torch  # noqa: PLC0415  (importing torch is a phase that may fail)

        torch.set_num_threads(self.job.effort.threads)
        torch.manual_seed(SEED)
        self._random_state = torch.get_rng_state()
        self.torch = torch
        self.device = torch.device(self.job.effort.device)
        self.clock = choose_clock(self.device.type, self.job.effort.threads)
        self.dtype: torch.dtype = getattr(torch, self.case.workload.dtype)
        self.variant_dtype: torch.dtype = getattr(torch, self.case.dtype)
        for flag in map(parse_flag, self.job.effort.flags):
            try:
                set_flag(flag)
            except NoSuchFlagError as error:
                raise CaseError("unsupported", f"{FLAG_REFUSED}{error}") from error
        device_name = "cpu"
        if self.device.type == "cuda":
            device_name = f"cuda {torch.cuda.get_device_name(self.device)}"
        self.journal.note(device=device_name, torch_full=torch.__version__, gil=gil_is_on())

    def _import_workload(self) -> None:
        from ivhl.measure.subject import Subject  # noqa: PLC0415  (imports torch)

        workload, variant = self.case.workload, self.case.variant
        try:
            with refusing_exits():
                self._inputs_of: Callable[..., Any] = resolve(workload.make_inputs)
                self.subject = Subject(
                    self.case,
                    dtype=self.dtype,
                    variant_dtype=self.variant_dtype,
                    device=self.device,
                    seed=SEED,
                )
                self._prepare, self._finish = (
                    resolve(name) if name else None for name in (variant.prepare, variant.finish)
                )
        except ImportRefusedError as error:
            raise CaseError("import", f"{place_of(error)} {error}") from error
        # Importing the project may have changed it.
        self.torch.set_num_threads(self.job.effort.threads)

    @staticmethod
    def _snapshot() -> dict[str, Any]:
        from ivhl.measure.state import snapshot  # noqa: PLC0415  (imports torch)

        return snapshot()

    def _warn_of_changes(self, before: dict[str, Any]) -> None:
        """Warn if what is not timed has changed PyTorch: that holds for all arms."""
        from ivhl.measure.state import changes  # noqa: PLC0415  (imports torch)

        after = self._snapshot()
        of_torch = [name for name in before if "torch" in name and name not in SET_AGAIN]
        before, after = ({name: one[name] for name in of_torch} for one in (before, after))
        if changed := changes(before, after):
            warnings.warn(
                "ivhl: importing the workload's modules, or making its inputs and its model, "
                f"changes the process in which all arms are measured: {'; '.join(changed)}; set it "
                "inside of the function, or not at all",
                stacklevel=1,
            )

    def _draw(self, seed: int, first: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
        from ivhl.measure.draws import cast, draw  # noqa: PLC0415  (imports torch)

        workload = self.case.workload
        size = workload.sizes[self.case.size]
        drawn = draw(
            lambda size, generator: self.subject.take_inputs(self._inputs_of(size, generator)),
            size, seed, first=first, fixed=workload.fixed,
        )  # fmt: skip
        return cast(drawn, self.dtype, self.device)  # type: ignore[no-any-return]

    def _prepared(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the variant's own inputs, which share no memory with the workload's."""
        from ivhl.measure.draws import cast, clone  # noqa: PLC0415  (imports torch)
        from ivhl.measure.leaves import leaves_of  # noqa: PLC0415

        own = cast(inputs, self.variant_dtype, self.device)
        prepared = self._prepare(*own) if self._prepare else own
        if not isinstance(prepared, tuple):
            prepared = (prepared,)
        self._refuse_own_types(leaves_of(prepared).types.values(), "prepare")
        copied: tuple[Any, ...] = clone(prepared)
        return copied

    def _refuse_own_types(self, types: Iterable[type], who: str) -> None:
        """Refuse tensor subclasses that eager does not return: they may compute when read."""
        for kind in types:
            if kind not in self._eager_types:
                raise CaseError(
                    "side_effect",
                    f"the variant's {who} returns a {kind.__name__}, which may compute its "
                    "values when they are read, after the clock has stopped",
                )

    _eager_types: frozenset[type] = frozenset()

    def _make_inputs(self) -> None:
        from ivhl.measure.draws import (  # noqa: PLC0415  (imports torch)
            N_DRAWS,
            ShapesDifferError,
            check_alike,
            check_different,
            clone,
        )

        self.journal.enter("inputs")
        first = self._draw(SEED)
        self.subject.make_models(self.case.workload.sizes[self.case.size])
        self._refuse_fixed_data(len(first))
        self.draws = [first]
        self.variant_draws = [self._prepared(first)]
        for number in range(1, N_DRAWS):
            other = self._draw(SEED + number, first)
            prepared = self._prepared(other)
            try:
                check_alike(first, other)
                self._check_prepared_alike(prepared)
                check_different(first, other)
            except ShapesDifferError as difference:
                warnings.warn(
                    "ivhl: the data cannot change between blocks, so a variant that returns kept "
                    f"results would not be noticed: {difference}",
                    stacklevel=1,
                )
                break
            self.draws.append(other)
            self.variant_draws.append(prepared)
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()
        self.inputs = clone(first)
        self.variant_inputs = clone(self.variant_draws[0])
        self.journal.note(
            draws=len(self.draws), reference=self.case.level, passes=self.subject.passes
        )
        self.journal.enter("eager")
        self.subject.warm_up(first)
        self._run = self.subject.eager_arm(self.inputs)

    def _check_prepared_alike(self, prepared: tuple[Any, ...]) -> None:
        from ivhl.measure.draws import ShapesDifferError, check_alike  # noqa: PLC0415

        try:
            check_alike(self.variant_draws[0], prepared)
        except ShapesDifferError as difference:
            raise CaseError(
                "inputs",
                f"{self.case.variant.prepare} returns different shapes for inputs of equal shapes, "
                f"so the data cannot change between blocks of calls: {difference}",
            ) from difference

    def _refuse_fixed_data(self, n_inputs: int) -> None:
        if n_inputs and set(range(n_inputs)) <= set(self.case.workload.fixed):
            raise CaseError("inputs", "`fixed` names every input, so all draws would be equal")

    def use_draw(self, number: int) -> int:
        """Copy a draw into the tensors that the arms read, and return its number."""
        from ivhl.measure.draws import fill  # noqa: PLC0415  (imports torch)

        number %= len(self.draws)
        fill(self.inputs, self.draws[number])
        fill(self.variant_inputs, self.variant_draws[number])
        # Every block uses the same random numbers, whatever ran before it.
        self.torch.set_rng_state(self._random_state)
        return number

    def _try_eager(self) -> None:
        """Call eager once, before the reference could be blamed for what cannot run at all."""
        from ivhl.measure.state import snapshot  # noqa: PLC0415  (imports torch)

        self.use_draw(0)
        before = snapshot(self.subject.eager)
        self.subject.note_random_numbers(self._run)
        self._refuse_eager_that_changes(before)

    def _run_reference(self) -> None:
        self.journal.enter("reference")
        path = Path(self.job.references)
        # Saved for the other processes of the case. They compute the references again if loading
        # fails: the disk may be full, and PyTorch 2.5.1 cannot save on Python 3.13.
        with suppress(Exception):
            self.references, moves = self.torch.load(path, weights_only=True)
            self._typical = self._typical_of(moves)
            return
        self.references = [self._reference_of(inputs) for inputs in self.draws]
        moves = [
            self.subject.moves_of(inputs, self.references[number], number)
            for number, inputs in enumerate(self.draws)
        ]
        self._typical = self._typical_of(moves)
        with suppress(Exception):
            fresh = path.with_name(f"{path.name}.{self.job.process}")
            self.torch.save([self.references, moves], fresh)
            fresh.rename(path)

    def _warn_of_rounded_references(self) -> None:
        """Warn of what the same code in float64 rounds all the same: it judges less sharply."""
        from ivhl.measure.accuracy import rounded  # noqa: PLC0415  (imports torch)

        if self.case.level == "float64" and (names := rounded(self.references[0])):
            warnings.warn(
                f"ivhl: the float64 reference rounds {', '.join(names[:8])}: the code casts to a "
                "precision of its own; with `reference`, another formula judges it",
                stacklevel=1,
            )

    def _typical_of(self, moves: list[dict[str, float]]) -> dict[int, Typical]:
        """Return what outputs of few elements are like on all draws, by the number of the output.

        Args:
            moves: By draw, what ``Subject.moves_of`` returned.
        """
        from ivhl.measure.accuracy import typical_of  # noqa: PLC0415  (imports torch)
        from ivhl.measure.subject import has_few, has_own_scale  # noqa: PLC0415

        return {
            number: typical_of(
                [one[path] for one in self.references if path in one],
                [one[path] for one in moves if path in one],
                own=has_own_scale(path),
            )
            for number, (path, first) in enumerate(self.references[0].items())
            if has_few(first)
        }

    def _reference_of(self, inputs: tuple[Any, ...]) -> dict[str, Any]:
        """Return the reference of each output by its path."""
        references: dict[str, Any] = self.subject.reference_of(inputs).tensors
        return references

    def _refuse_what_is_not_finite(
        self, names: Sequence[str], tensors: list[Any], references: list[Any]
    ) -> None:
        """Refuse a reference that is not finite where eager is, or nowhere.

        An infinity that both have, such as that of a mask, is as good as a number.
        """
        for name, tensor, reference in zip(names, tensors, references, strict=True):
            finite = self.torch.isfinite(reference).cpu()
            if bool(finite.all()) or tensor.shape != reference.shape:
                continue
            held = name.startswith("model.")  # it may be all of a mask
            if bool((self.torch.isfinite(tensor).cpu() & ~finite).any()) or not (
                held or bool(finite.any())
            ):
                which = "" if self.case.level == "independent" else f": {name}"
                raise CaseError(
                    "reference", f"the float64 reference is not finite on these inputs{which}"
                )

    def _run_eager(self) -> None:
        """Judge eager on every draw; refuse it if it changes its inputs or the process."""
        from ivhl.measure.state import snapshot  # noqa: PLC0415  (imports torch)

        self.journal.enter("eager")
        self.anchors: list[Anchor] = []
        self.use_draw(0)
        before = snapshot(self.subject.eager)
        places = []
        for number in range(len(self.draws)):
            self.use_draw(number)
            outputs = leaves_in(self._run())
            places.append([(t, t.data_ptr()) for t in outputs.tensors.values()])
            self._eager_types |= set(outputs.types.values())
            self.refuse_changed_eager_inputs(number)
            inputs = self.draws[number]
            self.anchors.append(self._judge_eager(outputs, inputs, self.references[number]))
            self.subject.note_eager(outputs)
        self._note_largest_errors()
        self._run = self.subject.with_same_numbers(self._run)
        self._refuse_eager_that_changes(before)
        self._eager_reuses_memory = _share_memory(*places[:2]) if len(places) > 1 else True
        self._note_accuracy(self.anchors[0].errors)

    _allowed: frozenset[str] = frozenset()

    def _refuse_eager_that_changes(self, before: dict[str, Any]) -> None:
        from ivhl.measure.state import changes, differing, snapshot  # noqa: PLC0415

        # If eager draws random numbers, a variant may draw them, too.
        self._allowed |= RANDOM_STATES & set(differing(before, snapshot(self.subject.eager)))
        if changed := changes(before, snapshot(self.subject.eager), self._allowed):
            raise CaseError("eager_failed", f"eager changes the process: {'; '.join(changed)}")

    def _note_largest_errors(self) -> None:
        """Take note of eager's largest error of each output of few elements, over all draws."""
        for anchor in self.anchors:
            for number, error in enumerate(anchor.errors):
                if usual := self._typical.get(number):
                    most = max(usual.error, error.eager_rmse or 0.0)
                    self._typical[number] = replace(usual, error=most)

    def _judge_eager(
        self, outputs: Leaves, inputs: tuple[Any, ...], references: dict[str, Any]
    ) -> Anchor:
        """Return what outputs on the same draw are judged by.

        Raises:
            CaseError: If eager does not agree with the reference.
        """
        from ivhl.measure.accuracy import (  # noqa: PLC0415
            eager_is_sound,
            judge_eager,
            limit_without_jumps,
            limits_of_precision,
        )

        workload = self.case.workload
        if not outputs.tensors:
            raise CaseError("eager_failed", "no tensor among the outputs of eager")
        names = workload.outputs or tuple(outputs.tensors)
        if not workload.outputs and self.case.level != "independent":
            self._refuse_other_paths(outputs, references)
        tensors = list(outputs.tensors.values())
        exact = self._reference_of_equal_shapes(tensors, list(references.values()), inputs)
        exact = limits_of_precision(tensors, exact, workload.dtype)
        if len(names) == len(tensors) == len(exact):
            self._refuse_what_is_not_finite(names, tensors, exact)
        errors = judge_eager(names, tensors, exact)
        scales = None
        if not workload.outputs:
            # A reference of one's own may name its outputs as it likes.
            scales = self.subject.scales_of(
                outputs.tensors, dict(zip(outputs.tensors, exact, strict=True))
            )
        if self.case.level not in ("tolerance", "cosine"):
            limits = [
                limit_without_jumps(
                    error,
                    tensors[number],
                    exact[number],
                    scales[number] if scales else None,
                    dtype=workload.dtype,
                    tolerance=workload.tolerance,
                    typical=self._typical.get(number),
                )
                for number, error in enumerate(errors)
            ]
            looks = self.subject.looks(inputs, exact=True, dtype=workload.dtype)
            without = self._without_jumps(tensors, exact, limits, looks)
            if without is not tensors:
                errors = judge_eager(names, without, exact)
        for number, error in enumerate(errors):
            own = scales[number] if scales else None
            usual = self._typical.get(number)
            if not eager_is_sound(error, own, dtype=workload.dtype, typical=usual):
                self._note_accuracy(errors)
                hint = ""
                if not self.torch.equal(self.torch.get_rng_state(), self._random_state):
                    hint = (
                        "; eager draws random numbers, which may differ in float64: take them from "
                        "the inputs, or write reference='tolerance'"
                    )
                raise CaseError(
                    "eager_failed",
                    f"eager's {error.output} does not agree with the reference: RMSE "
                    f"{error.eager_rmse} at a scale of {error.scale}{hint}",
                )
        return Anchor(
            references=exact, errors=errors, eager=outputs.shaped(), scales=scales, inputs=inputs
        )

    def _reference_of_equal_shapes(
        self, tensors: list[Any], references: list[Any], inputs: tuple[Any, ...]
    ) -> list[Any]:
        """Return the reference, or if its shapes differ, what it is on inputs rounded once more.

        How many elements a mask selects may jump.
        """
        shapes = [tensor.shape for tensor in tensors]
        if len(shapes) != len(references) or shapes == [one.shape for one in references]:
            return references
        with self._random_numbers_kept():
            for look in self.subject.looks(inputs, exact=True, dtype=self.case.workload.dtype):
                seen = list(look.tensors.values())
                if [one.shape for one in seen] == shapes:
                    return seen
        return references

    def _without_jumps(
        self,
        tensors: list[Any],
        references: list[Any],
        limits: list[float],
        looks: Iterator[Leaves],
    ) -> list[Any]:
        """Return outputs without the jumps that rounding explains.

        Args:
            tensors: The outputs.
            references: What they are judged by.
            limits: For each output, how far an element may be off without a jump.
            looks: What the same code returns on inputs that are rounded a little more.
        """
        from ivhl.measure.jumps import Jumps  # noqa: PLC0415  (imports torch)

        jumps = Jumps(tensors, references, limits)
        if jumps.settled:
            return tensors
        with self._random_numbers_kept():
            for look in looks:
                jumps.look(list(look.tensors.values()))
                if jumps.settled:
                    break
        return jumps.without()

    def _refuse_other_paths(self, outputs: Leaves, references: dict[str, Any]) -> None:
        if list(outputs.tensors) != list(references):
            other = next(iter({*outputs.tensors} ^ {*references}), "their order")
            raise CaseError(
                "reference", f"eager in float64 returns other outputs than in float32: {other}"
            )

    def _run_source(self) -> None:
        """Judge the variant's own source, run eagerly, before the compiler could be blamed."""
        from ivhl.measure.state import snapshot  # noqa: PLC0415  (imports torch)

        self.journal.enter("eager")
        self.use_draw(0)
        self._state = snapshot(self.subject.eager)
        arm = self.subject.variant_arm(
            lambda function: function, self.variant_inputs, self.subject.variant_copy()
        )
        self.source = self.subject.with_same_numbers(arm)
        for number in range(len(self.draws)):
            self.use_draw(number)
            outputs = self.detached(self.source())
            self._note_source(outputs, self.anchors[number])
            if self.subject.is_own_source:
                self.judge(outputs, number, "the variant's own source, run eagerly: its")
        if self.subject.is_own_source:
            self.refuse_new_state("the variant's own source")

    def _note_source(self, outputs: Leaves, anchor: Anchor) -> None:
        """Let the source's error in the variant's own precision, if it has one, be the anchor."""
        from ivhl.measure.accuracy import judge_eager, limit_without_jumps  # noqa: PLC0415

        if self.variant_dtype == self.dtype:
            return
        dtype, tensors = self.case.dtype, list(outputs.tensors.values())
        names = [error.output for error in anchor.errors]
        errors = judge_eager(names, tensors, anchor.references)
        limits = [
            limit_without_jumps(
                *row,
                dtype=dtype,
                tolerance=self.case.workload.tolerance,
            )
            for row in zip(errors, tensors, anchor.references, strict=True)
        ]
        looks = self.subject.looks(anchor.inputs, exact=False, dtype=dtype)
        without = self._without_jumps(tensors, anchor.references, limits, looks)
        anchor.source = judge_eager(names, without, anchor.references)

    def _refuse_work_beside_the_call(self) -> None:
        """Refuse a ``prepare`` or ``finish`` that computes: no clock runs while they do.

        They may rearrange numbers, and compute from ``fixed`` inputs, as an application would do
        once. So every prepared number that differs between draws must be a number of the inputs,
        and every number that ``finish`` returns must be one of the call's outputs, up to the sign.
        """
        from ivhl.measure.draws import cast, made_of  # noqa: PLC0415  (imports torch)

        variant = self.case.variant
        if variant.prepare and len(self.draws) > 1:
            own = cast(self.draws[0], self.variant_dtype, self.device)
            if not made_of(self.variant_draws[0], own, unlike=self.variant_draws[1]):
                raise CaseError(
                    "side_effect",
                    f"{variant.prepare} does work of the call without being timed: it may only "
                    "rearrange numbers, or compute from `fixed` inputs",
                )
        if self._finish:
            self.use_draw(0)
            outputs = self.source()
            if not made_of(self._finish(outputs), outputs):
                raise CaseError(
                    "side_effect",
                    f"{variant.finish} does work of the call without being timed: it may only "
                    "rearrange numbers",
                )

    def _compiler(self) -> Callable[..., Any]:
        variant = self.case.variant
        arguments: dict[str, Any] = {"dynamic": variant.dynamic, "fullgraph": variant.fullgraph}
        if variant.mode != "default":
            arguments["mode"] = variant.mode

        def torch_compile(function: Callable[..., Any]) -> Callable[..., Any]:
            compiled: Callable[..., Any] = self.torch.compile(function, **arguments)
            return compiled

        with_graphs = self.device.type == "cuda" and variant.mode in GRAPH_MODES
        if with_graphs and variant.compiles == "parts":
            from ivhl.measure.engine import returning_copies  # noqa: PLC0415  (imports torch)

            return lambda function: returning_copies(torch_compile(function))
        return torch_compile

    def _engine(self) -> Callable[..., Any]:
        """Return the compiler of the variant's engine, ``torch.compile`` by default."""
        from ivhl.measure.engine import compiler_of  # noqa: PLC0415  (imports torch)

        return compiler_of(self.case.variant.engine, self._compiler())

    def _compile(self) -> None:
        """Compile and call once: cold in the stage ``compile``, else warm from its cache."""
        from ivhl.measure.state import changes, snapshot  # noqa: PLC0415

        self.journal.enter("compile")
        engine = self._engine()
        # Other engines do not use Dynamo, which may not even support this Python.
        if self.case.variant.engine in DYNAMO_ENGINES:
            use_compiler(skip_isa_check=self.job.skip_isa_check, device=self.job.effort.device)
            self.torch._dynamo.reset()  # noqa: SLF001
            from ivhl.measure.dynamo import Watch  # noqa: PLC0415

            self.watch = Watch()
        elif self.case.variant.engine == "hotpath":
            from ivhl.measure.hotpaths import HotPaths  # noqa: PLC0415

            use_compiler(
                skip_isa_check=self.job.skip_isa_check,
                device=self.job.effort.device,
                compiler=HotPaths().compiler,
            )
            self.watch = hot = HotPaths()
            engine = hot.compiler
        self.use_draw(0)
        self._let_random_numbers_agree()
        held = self.subject.variant_copy()
        self.synchronize()
        before = snapshot(self.subject.eager)
        workers = living_descendants()
        began = begin(workers)
        arm = self.subject.variant_arm(engine, self.variant_inputs, held)
        self.compiled = self.subject.with_same_numbers(arm)
        outputs = getattr(self.compiled, "call", self.compiled)()
        self.synchronize()
        took = since(began, living_descendants())
        self.first_outputs = getattr(self.compiled, "read", lambda found: found)(outputs)
        stage = "cold" if self.job.stage == "compile" else "warm"
        self._seconds = {f"{stage}_s": took.wall / 1e9, f"{stage}_cpu_s": took.cpu / 1e9}
        self._note_compile()
        allowed = RANDOM_STATES
        if self.case.variant.engine in INDUCTOR_ENGINES:
            allowed |= BY_INDUCTOR
        self._refuse_changes(changes(before, snapshot(self.subject.eager), allowed))

    def _let_random_numbers_agree(self) -> None:
        """Have Inductor draw the random numbers that eager draws, so that both can be compared."""
        wanted = self.subject.draws_random_numbers and not self._by_law
        if wanted and self.case.variant.engine in INDUCTOR_ENGINES:
            from torch._inductor import config  # noqa: PLC0415

            self._asked_to_agree = config.fallback_random = True
            warnings.warn(
                "ivhl: eager draws random numbers, so Inductor was told to draw the same ones "
                "(torch._inductor.config.fallback_random); its own are faster",
                stacklevel=1,
            )

    _asked_to_agree = _by_law = False

    def _compile_and_judge(self) -> None:
        """Compile, and judge the first calls.

        What is wrong only because Inductor was told to draw eager's random numbers is compiled
        again without that.
        """
        self._compile()
        try:
            self._judge_first_calls()
        except CaseError as error:
            if error.failure_class != "wrong" or not self._asked_to_agree:
                raise
            self._judge_by_law(error)

    def _judge_by_law(self, wrong: CaseError) -> None:
        """Judge what draws its own random numbers by statistics of many calls."""
        from torch._inductor import config  # noqa: PLC0415

        config.fallback_random, self._by_law = False, True
        self._compile()
        self.journal.enter("accuracy")
        because = f"with torch._inductor.config.fallback_random=True, which ivhl had set, {wrong}"
        if shortfall := self._unlike_eager():
            raise CaseError("wrong", f"{shortfall}, with random numbers of its own; {because}")
        self.journal.note(accuracy=[])
        warnings.warn(
            f"ivhl: compared by statistics of many calls, not by value: {because}", stacklevel=1
        )
        self._judge_first_calls()

    def _unlike_eager(self) -> str:
        """Return where random numbers of its own give outputs another law; empty if nowhere."""
        from ivhl.measure.randomness import CALLS, unlike  # noqa: PLC0415  (imports torch)

        self.use_draw(0)
        rows = []
        for number, arm in enumerate((self._run, self._run, self.compiled)):
            for call in range(CALLS):
                with self.subject.drawing_others(SEED + 1 + number * CALLS + call):
                    outputs = arm()
                found = self.detached(outputs) if arm is self.compiled else leaves_in(outputs)
                rows.append(list(found.copied().tensors.values()))
        anchor = self.anchors[0]
        names = self.case.workload.outputs or tuple(anchor.eager.tensors)
        shapes = [tensor.shape for tensor in anchor.eager.tensors.values()]
        if any([tensor.shape for tensor in row] != shapes for row in rows):
            return "outputs have shapes that change from call to call"
        other = unlike(rows[: 2 * CALLS], rows[2 * CALLS :], self.case.workload.tolerance)
        return "" if other is None else f"{names[other[0]]}: {other[1]}"

    def _judge_first_calls(self) -> None:
        """Judge the first calls, each on another draw, and check that the code was compiled."""
        from ivhl.measure.leaves import leaves_of  # noqa: PLC0415  (imports torch)
        from ivhl.measure.state import snapshot  # noqa: PLC0415

        self.journal.enter("accuracy")
        self.judge(self.detached(self.first_outputs), 0, "the first call's")
        self.refuse_changed_inputs(0)
        places = []
        given = {t.data_ptr() for t in leaves_of(self.variant_inputs).tensors.values()}
        for call in range(1, CALLS_BEFORE_TIMING):
            number = self.use_draw(call)
            if call == 1:
                self._state = snapshot(self.subject.eager)
            outputs = self.compiled()
            self.synchronize()
            if call < 1 + len(self.draws):  # each draw once; later calls only let Dynamo settle
                self.judge(self.detached(outputs), number, f"call {call + 1}'s")
            self.refuse_changed_inputs(number)
            # Compilers may return an input for ``x * 1``; such an output has no memory of its own.
            found = leaves_in(outputs).tensors.values()
            places.append([(t, t.data_ptr()) for t in found if t.data_ptr() not in given])
            del places[:-2]
        if self._may_not_reuse_memory() and _share_memory(*places):
            raise CaseError(
                "side_effect",
                "each call writes its results into the memory of the previous call's results, which "
                "a caller may still use",
            )
        places.clear()
        self.first_outputs = None
        self._note_compile()
        self._check_that_it_compiled()
        self.refuse_new_state("the variant")

    def _may_not_reuse_memory(self) -> bool:
        # A CUDA graph reuses its output memory by design.
        return (
            self.device.type == "cpu"
            and self.case.variant.engine != "cuda-graph"
            and not self.subject.has_model  # what is read of a model is a copy
            and not self._eager_reuses_memory
        )

    def _check_that_it_compiled(self) -> None:
        self._note_a_fallback()
        if self.watch is not None and (reason := self.watch.not_compiled()):
            raise CaseError("not_compiled", reason)

    def _note_a_fallback(self) -> None:
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
        if not self._limit_was_hit:
            self._limit_was_hit = True
            warnings.warn(
                f"ivhl: {LIMIT_REACHED}, from which on a frame runs eagerly: {reason}",
                stacklevel=1,
            )

    _limit_was_hit = False

    def refuse_changed_eager_inputs(self, number: int) -> None:
        """Refuse eager if it changed its inputs."""
        from ivhl.measure.draws import holds  # noqa: PLC0415  (imports torch)

        if not holds(self.inputs, self.draws[number]):
            raise CaseError(
                "eager_failed",
                "eager changes its inputs, so a second call computes something else",
            )

    def refuse_changed_inputs(self, number: int) -> None:
        """Refuse the variant if it changed its inputs."""
        from ivhl.measure.draws import holds  # noqa: PLC0415  (imports torch)

        if not holds(self.variant_inputs, self.variant_draws[number]):
            raise CaseError(
                "side_effect",
                "the variant changes its inputs, so a second call computes something else",
            )

    def refuse_new_state(self, who: str) -> None:
        """Refuse code that changed the state of the process since compiling."""
        from ivhl.measure.state import changes, snapshot  # noqa: PLC0415  (imports torch)

        self._refuse_changes(
            changes(self._state, snapshot(self.subject.eager), self._allowed), who
        )

    def _refuse_changes(self, changed: list[str], who: str = "the variant") -> None:
        if changed:
            raise CaseError(
                "side_effect",
                f"{who} changes the process in which all arms are measured: " + "; ".join(changed),
            )

    def judge(self, outputs: Leaves, number: int, which: str) -> None:
        """Judge outputs on a draw; the record shows the worst one."""
        self._judge_against(outputs, self.anchors[number], which)

    def _judge_against(self, outputs: Leaves, anchor: Anchor, which: str) -> None:
        """Judge outputs, and note the worst one judged so far."""
        from ivhl.measure.accuracy import worse  # noqa: PLC0415

        own_source = "own source" in which
        failure_class: FailureClass = "eager_failed" if own_source else "wrong"
        if self._by_law and not own_source:
            if other := self.subject.compare_structure(anchor.eager, outputs):
                raise CaseError(failure_class, f"{which} {other}")
            return
        try:
            judged = self._errors_of(outputs, anchor)
        except ValueError as mismatch:
            found = self._judge_by_a_look(outputs, anchor)
            if found is None:
                other = self.subject.compare_structure(anchor.eager, outputs)
                raise CaseError(
                    failure_class, f"{which} output cannot be compared: {other or mismatch}"
                ) from mismatch
            judged, other = found, None
        else:
            if not all(error.passed for error in judged) and self._may_jump(anchor):
                anchor.scales = self.subject.with_jumps(
                    list(anchor.scales or ()), anchor.inputs, anchor.references
                )
                judged = self._errors_of(outputs, anchor)
            other = self.subject.compare_structure(anchor.eager, outputs)
            if other or not all(error.passed for error in judged):
                outputs, judged, other = self._judge_without_jumps(outputs, anchor, judged, other)
        if shortfall := next(self._shortfalls(judged, outputs, anchor), other):
            raise CaseError(failure_class, f"{which} {shortfall}")
        if not own_source:
            self._judged = worse(self._judged, judged)
            self._note_accuracy(self._judged)

    def _judge_without_jumps(
        self,
        outputs: Leaves,
        anchor: Anchor,
        judged: tuple[OutputError, ...],
        other: str | None,
    ) -> tuple[Leaves, tuple[OutputError, ...], str | None]:
        """Return outputs, errors and the difference in structure that rounding does not explain.

        Args:
            outputs: What seems wrong.
            anchor: What it is judged by.
            judged: Its errors.
            other: Where it differs from eager in structure or in what is no tensor.
        """
        from ivhl.measure.accuracy import EAGER_LIMIT  # noqa: PLC0415  (imports torch)
        from ivhl.measure.jumps import Jumps  # noqa: PLC0415

        limits = [
            EAGER_LIMIT * error.scale if error.limit_max is None else error.limit_max
            for error in judged
        ]
        if self.case.level == "tolerance":
            limits = [self.case.workload.tolerance] * len(judged)
        jumps = Jumps(list(outputs.tensors.values()), anchor.references, limits)
        with self._random_numbers_kept():
            for look in self.subject.looks(anchor.inputs, exact=False, dtype=self.case.dtype):
                if other and self.subject.compare_structure(look, outputs) is None:
                    other = None
                    self._warn_of_jumps("a value that is no tensor")
                jumps.look(list(look.tensors.values()))
                if not other and jumps.settled:
                    break
        if not (jumped := jumps.jumped()):
            return outputs, judged, other
        outputs_of = ", ".join(judged[number].output for number in jumped[:3])
        self._warn_of_jumps(f"elements of {outputs_of}")
        without = dict(zip(outputs.tensors, jumps.without(), strict=True))
        outputs = replace(outputs, tensors=without)
        return outputs, self._errors_of(outputs, anchor), other

    def _judge_by_a_look(self, outputs: Leaves, anchor: Anchor) -> tuple[OutputError, ...] | None:
        """Return the errors against eager on inputs rounded once more, if only there shapes agree.

        How many elements a mask selects jumps, too. ``None`` if no such inputs explain it.
        """
        with self._random_numbers_kept():
            for look in self.subject.looks(anchor.inputs, exact=False, dtype=self.case.dtype):
                if self.subject.compare_structure(look, outputs) is not None:
                    continue
                beside = replace(anchor, references=list(look.tensors.values()))
                with suppress(ValueError):
                    judged = self._errors_of(outputs, beside)
                    if all(error.passed for error in judged):
                        self._warn_of_jumps("the shape of an output")
                        return judged
        return None

    @contextmanager
    def _random_numbers_kept(self) -> Iterator[None]:
        state = self.torch.get_rng_state()
        try:
            yield
        finally:
            self.torch.set_rng_state(state)

    @staticmethod
    def _warn_of_jumps(what: str) -> None:
        warnings.warn(
            f"ivhl: rounding decides {what}; what eager returns there on inputs that are rounded a "
            "little more counts as right",
            stacklevel=1,
        )

    def _may_jump(self, anchor: Anchor) -> bool:
        """Return whether gradients are among what is judged, by the same code in float64."""
        gradients = any(error.output.startswith("grad.") for error in anchor.errors)
        return gradients and self.case.level == "float64" and anchor.scales is not None

    def _errors_of(self, outputs: Leaves, anchor: Anchor) -> tuple[OutputError, ...]:
        from ivhl.measure.accuracy import judge_by_eager, judge_compiled  # noqa: PLC0415

        workload, level = self.case.workload, self.case.level
        tensors = list(outputs.tensors.values())
        if not workload.outputs and list(outputs.tensors) != list(anchor.eager.tensors):
            raise ValueError("other outputs than eager's")
        if level in ("tolerance", "cosine"):
            return judge_by_eager(
                anchor.errors, tensors, anchor.references, rule=level, tolerance=workload.tolerance
            )
        return judge_compiled(
            anchor.errors,
            tensors,
            anchor.references,
            dtype=self.case.dtype,
            tolerance=workload.tolerance,
            anchors=anchor.source,
            scales=anchor.scales,
            typical=self._typical_in(self.case.dtype),
        )

    def _typical_in(self, dtype: str) -> dict[int, Typical]:
        """Return what outputs are like, rounded in the variant's precision."""
        from ivhl.measure.accuracy import ROUNDOFF  # noqa: PLC0415  (imports torch)

        wider = ROUNDOFF[dtype] / ROUNDOFF[self.case.workload.dtype]
        return {
            number: replace(usual, rounding=usual.rounding * wider)
            for number, usual in self._typical.items()
        }

    _judged: tuple[OutputError, ...] = ()

    def _shortfalls(
        self, judged: tuple[OutputError, ...], outputs: Leaves, anchor: Anchor
    ) -> Iterator[str]:
        """Yield what is wrong with each output that failed, and note the errors of all."""
        tensors = outputs.tensors.values()
        for error, *tensor in zip(judged, tensors, anchor.references, strict=True):
            if not error.passed:
                self._note_accuracy(judged)
                yield self._shortfall(error, *tensor)

    def _shortfall(self, error: OutputError, output: Any, reference: Any) -> str:  # noqa: ANN401
        from ivhl.measure.accuracy import (  # noqa: PLC0415  (imports torch)
            LEAST_COSINE,
            how_integers_differ,
            is_rounded,
        )

        by_eager = self.case.level in ("tolerance", "cosine")
        if not is_rounded(output) and not is_rounded(reference):
            what = "eager's" if by_eager else "the reference"
            return (
                f"{error.output} differs from {what} {how_integers_differ(output, reference)}; no "
                "rounding of the inputs explains it, and nothing is allowed"
            )
        if error.cosine is not None:
            return (
                f"{error.output} has a cosine of {error.cosine:.4f} with eager's; PyTorch's rule "
                f"for whole models asks for {LEAST_COSINE}"
            )
        if by_eager:
            tolerance = self.case.workload.tolerance
            return (
                f"{error.output} differs from eager's by up to {number(error.compiled_max)}; "
                f"allowed is {tolerance:g} + {tolerance:g} · |eager|"
            )
        if error.limit_rmse == error.limit_max == 0.0:
            return (
                f"{error.output} is off by up to {number(error.compiled_max)} against float64, and "
                "no rounding of the inputs explains it; nothing is allowed"
            )
        if error.compiled_rmse is not None and error.compiled_rmse <= (error.limit_rmse or 0.0):
            return (
                f"{error.output} has an element with an error of {number(error.compiled_max)} "
                f"against float64; eager has at most {number(error.eager_max)}, allowed is "
                f"{number(error.limit_max)}"
            )
        anchor = f"eager has {number(error.eager_rmse)}"
        if self.variant_dtype != self.dtype:
            anchor = f"its source, eager in {self.case.dtype}, has {number(error.anchor_rmse)}"
        return (
            f"{error.output} has an RMSE of {number(error.compiled_rmse)} against float64; "
            f"{anchor}, allowed is {number(error.limit_rmse)}"
        )

    def _time_eager(self, *names: str) -> None:
        """Time eager briefly, before the variant has run."""
        from ivhl.measure.calibration import calibrate  # noqa: PLC0415  (imports torch)
        from ivhl.measure.timing import BRIEF, time_arms  # noqa: PLC0415

        self.journal.enter("eager")
        arms = dict.fromkeys(names, self._run)
        with self._alone():
            times = time_arms(arms, clock=self.clock, schedule=BRIEF, seed=self.job.seed)
            self._calibration_before = calibrate(self.device)
        self._eager_before = next(iter(times.values())).samples_s
        if "eager_again" in names:
            self._note_times(times)

    def _time(self) -> None:
        from ivhl.measure.around import Around  # noqa: PLC0415  (imports torch)
        from ivhl.measure.calibration import calibrate  # noqa: PLC0415
        from ivhl.measure.timing import SCHEDULE, time_arms  # noqa: PLC0415

        self.journal.enter("timing")
        arms: dict[str, Callable[[], Any]] = {
            "eager": self._run,
            "eager_again": self._run,
            "compiled": self.compiled,
        }
        variant = self.case.variant
        # With the engine ``eager``, the arm ``compiled`` already is the source run eagerly.
        if variant.engine != "eager" and (
            self.case.call != self.case.workload.eager or self.variant_dtype != self.dtype
        ):
            arms["formulation_eager"] = self.source
        times: dict[str, Times] = {}
        calibrations = [calibrate(self.device)]
        for last in (False, True):
            mark = self.watch.mark() if self.watch else None
            times = time_arms(
                arms,
                clock=self.clock,
                schedule=SCHEDULE,
                seed=self.job.seed + last,
                bystander=Around(self),
            )
            self._note_compile()
            self._note_a_fallback()
            if self.watch is None or mark is None or not (news := self.watch.since(mark)):
                break
            # The times include this compilation. Time once more: Dynamo may have settled.
            if last:
                raise CaseError(
                    "recompiles",
                    f"{self.watch.compiler_name} recompiled while the variant was timed: {news}",
                )
        calibrations.append(calibrate(self.device))
        self.journal.note(calibration={k: [c[k] for c in calibrations] for k in calibrations[0]})
        self._note_times(times)
        self.times = times
        self._compare_with_eager_before(calibrations)

    def _compare_with_eager_before(self, calibrations: list[dict[str, float]]) -> None:
        before, after = self._eager_before, self.times["eager"].samples_s
        # Where others used the memory just then, eager was slow and so was a copy of memory. A
        # machine that is slower later excuses nothing: the variant may have done that, too.
        then = self._calibration_before
        slower_then = max(then[kind] / min(c[kind] for c in calibrations) for kind in then)
        least = min(before) / max(slower_then, 1.0)
        if min(after) > DISTURBED * max(before) or max(after) * DISTURBED < least:
            # Not a failure yet: other load on the machine looks the same, but not in every process
            # of the case.
            self.journal.note(
                disturbed=f"eager takes {median(after) / median(before):.2g} times as long as "
                "before the variant was first called: the variant changes eager's times"
            )

    def _call_on_fresh_data(self) -> None:
        """Refuse a variant that is slower on new data than on data just seen.

        The data is the same within a block, so a variant that caches results computes only once.
        """
        if len(self.draws) == 1:
            return
        mark = self.watch.mark() if self.watch else {}
        found = self._fresh_calls_show(0)
        # Test twice: other load on the machine may look the same once.
        if found is not None:
            found = self._fresh_calls_show(MOST_FRESH_DRAWS)
        self._note_compile()
        self._refuse_a_fallback_on_new_data()
        if found is None:
            return
        if self.watch and (news := self.watch.since(mark)):
            raise CaseError(
                "recompiles", f"{self.watch.compiler_name} recompiles on new data: {news}"
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
        if self.watch is None or self._limit_was_hit or not (reason := self.watch.fell_back()):
            return
        took = self._time_fresh_calls(2 * MOST_FRESH_DRAWS) or {}
        seconds = [median(took[arm]["new"]) for arm in took]
        speed = f"; there it is {seconds[0] / seconds[1]:.2f}x as fast as eager" if took else ""
        raise CaseError(self.watch.fell_back_as, f"on new data: {reason}{speed}")

    def _fresh_calls_show(self, first: int) -> tuple[float, float] | None:
        took = self._time_fresh_calls(first)
        return None if took is None else self._remembering(took)

    def _time_fresh_calls(self, first: int) -> dict[str, dict[str, list[float]]] | None:
        """Return the seconds of single calls by arm and by the change before the call.

        The changes: ``new``, new data; ``copied``, the same data copied in again; ``touched``, only
        the tensors' versions raised; ``same``, none that a function could see. ``None`` if the
        shapes of new data differ.
        """
        from ivhl.measure.draws import (  # noqa: PLC0415  (imports torch)
            ShapesDifferError,
            check_alike,
            clone,
            fill,
            touch,
        )
        from ivhl.measure.timing import time_call  # noqa: PLC0415  (imports torch)

        arms: dict[str, Callable[[], Any]] = {
            "eager": self._run,
            "compiled": self.compiled,
        }
        took: dict[str, dict[str, list[float]]] = {a: {k: [] for k in FRESH_CALLS} for a in arms}
        live = self.inputs, self.variant_inputs
        decoys = clone(live)
        prepare_s = []
        outputs: dict[str, Any] = {}
        inputs: tuple[Any, ...] = ()
        workers = living_descendants()
        ends = time.perf_counter() + FRESH_S
        for number in range(first, first + MOST_FRESH_DRAWS):
            if number >= first + FRESH_DRAWS and time.perf_counter() > ends:
                break
            inputs = self._draw(self.job.secret + number, self.draws[0])
            began = begin()
            prepared = self._prepared(inputs)
            prepare_s.append(since(began).cpu / 1e9)
            fresh = inputs, prepared
            try:
                check_alike(live, fresh)
            except ShapesDifferError as difference:
                warnings.warn(f"ivhl: not called on new data: {difference}", stacklevel=1)
                return None
            for name in sorted(arms, reverse=bool(number % 2)):
                # One untimed call first, so that all timed calls find the same data in the caches.
                fill(live, fresh)
                self.use_draw(number)
                arms[name]()
                for kind in FRESH_CALLS:
                    if kind in ("new", "copied"):
                        self.use_draw(number)
                        fill(live, fresh)
                    else:
                        touch(live if kind == "touched" else decoys)
                    self.synchronize()
                    block = time_call(arms[name], self.clock, workers)
                    took[name][kind].append(block.seconds)
                    if kind == "new":
                        outputs[name] = block.output
        self._judge_fresh_calls(inputs, outputs, median(prepare_s))
        return took

    def _judge_fresh_calls(
        self, inputs: tuple[Any, ...], outputs: dict[str, Any], prepare_s: float
    ) -> None:
        self.journal.enter("accuracy")
        began = begin()
        finished = self.detached(outputs["compiled"])
        finish_s = since(began).cpu / 1e9
        exact = self._reference_of(inputs)
        anchor = self._judge_eager(leaves_in(outputs["eager"]), inputs, exact)
        if self.variant_dtype != self.dtype:
            self._note_source(self.detached(self.source()), anchor)
        self._judge_against(finished, anchor, "on new data, the")
        self.journal.note(
            prepare_s=prepare_s if self.case.variant.prepare else 0.0,
            finish_s=finish_s if self.case.variant.finish else 0.0,
        )
        self.journal.enter("timing")

    def _remembering(self, took: dict[str, dict[str, list[float]]]) -> tuple[float, float] | None:
        """Return by which factors compiled and eager are slower on new data, if compiled caches."""
        from ivhl.measure.timing import time_call  # noqa: PLC0415  (imports torch)

        for more, less in (("new", "copied"), ("touched", "same")):
            eager, compiled = (ratios(took[arm][more], took[arm][less]) for arm in took)
            # Three of four calls must show it: a single one may have been interrupted.
            surely = compiled[len(compiled) // 4]
            if surely > REMEMBERS * max(median(eager), 1.0):
                return surely, median(eager)
        # A variant that starts caching after some calls is slow in these, but not in the timing.
        asking = min(time_call(nothing, self.clock).seconds for _ in range(FRESH_DRAWS))
        later = {
            arm: (min(took[arm]["same"]) - asking) / median(self.times[arm].samples_s)
            for arm in took
        }
        if later["compiled"] > REMEMBERS_LATER * max(later["eager"], 1.0):
            return later["compiled"], later["eager"]
        return None

    def _measure_memory(self) -> None:
        from ivhl.measure.memory import peak_bytes  # noqa: PLC0415

        self.journal.enter("memory")
        try:
            memory = {
                name: peak_bytes(self._from_its_state(call), self.device)
                for name, call in (("eager_peak", self._run), ("compiled_peak", self.compiled))
            }
        except Exception as error:  # noqa: BLE001  (an error of the profiler is none of the case)
            warnings.warn(f"ivhl: memory was not measured: {error}", stacklevel=1)
        else:
            self.journal.note(memory=memory)
        if self.device.type == "cuda":
            self._count_kernels()

    def _count_kernels(self) -> None:
        from ivhl.measure.kernels import count_kernels  # noqa: PLC0415  (imports torch)

        kernels: dict[str, float] = {}
        try:
            for name, call in (("eager", self._run), ("compiled", self.compiled)):
                number, seconds = count_kernels(self._from_its_state(call), self.device)
                kernels |= {name: number, f"{name}_s": seconds}
        except Exception as error:  # noqa: BLE001  (an error of the profiler is none of the case)
            warnings.warn(f"ivhl: kernels were not counted: {error}", stacklevel=1)
        else:
            self.journal.note(kernels=kernels)

    @staticmethod
    def _from_its_state(call: Callable[[], Any]) -> Callable[[], Any]:
        """Return what of a call is measured, with its state put back."""
        from ivhl.measure.timing import Restored  # noqa: PLC0415  (imports torch)

        if not isinstance(call, Restored):
            return call
        call.restore()
        return call.call

    def detached(self, outputs: Any) -> Leaves:  # noqa: ANN401
        """Return copies of the outputs: CUDA graphs overwrite them at the next call."""
        found = leaves_in(outputs)
        self._refuse_own_types(found.types.values(), "call")
        if self._finish:
            found = leaves_in(self._finish(outputs))
        return found.copied()

    def synchronize(self) -> None:
        """Wait for the GPU, if the case runs on one."""
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)

    def _note_times(self, times: dict[str, Times]) -> None:
        self.journal.note(clock=self.clock, **{name: asdict(arm) for name, arm in times.items()})

    def _note_compile(self) -> None:
        facts: dict[str, Any] = dict(self._seconds)
        counts = ("frames_total", "frames_ok", "graphs", "calls_captured")
        if self.watch is None:
            facts |= dict.fromkeys(counts) | {"graph_breaks": [], "recompiles": []}
        else:
            numbers = (*self.watch.frames(), *self.watch.graphs())
            facts |= dict(zip(counts, numbers, strict=True)) | {
                "graph_breaks": [asdict(b) for b in self.watch.graph_breaks()],
                "recompiles": [asdict(r) for r in self.watch.recompile_reasons()],
            }
        self.journal.note(compile=facts)

    def _note_accuracy(self, errors: tuple[OutputError, ...]) -> None:
        from ivhl.measure.accuracy import share_of_limit  # noqa: PLC0415  (imports torch)

        if self.case.workload.outputs:
            self.journal.note(accuracy=[asdict(e) for e in errors])
            return
        # A model has hundreds: those that fail first, then those nearest to their limits.
        worst = sorted(errors, key=lambda e: (bool(e.passed), -share_of_limit(e)))[:MOST_LEAVES]
        self.journal.note(accuracy=[asdict(e) for e in worst], leaves=len(errors))


@dataclass(slots=True)
class Anchor:
    """What outputs on one draw are judged by.

    Attributes:
        references: In float64.
        errors: Those of eager.
        eager: Structure, shapes and dtypes of eager's outputs, and what of them is no tensor.
        scales: See ``accuracy.Scales``; ``None`` where the declaration names the outputs.
        inputs: The draw.
        source: Errors of the variant's own source in its own precision; ``None`` in eager's.
    """

    references: list[Any]
    errors: tuple[OutputError, ...]
    eager: Leaves
    scales: list[Scales] | None
    inputs: tuple[Any, ...]
    source: tuple[OutputError, ...] | None = None


def leaves_in(outputs: Any) -> Leaves:  # noqa: ANN401  (any nest, or what was read of a model)
    """Return the leaves of outputs; of a model, the state is among them."""
    from ivhl.measure.leaves import Leaves, leaves_of  # noqa: PLC0415  (imports torch)

    return outputs if isinstance(outputs, Leaves) else leaves_of(outputs)


def nothing() -> None:
    """Do nothing: timing this gives the overhead of timing a call."""


def ratios(a: list[float], b: list[float]) -> list[float]:
    """Return the ratios of pairs, smallest first."""
    return sorted(x / y for x, y in zip(a, b, strict=True))


def _share_memory(one: list[tuple[Any, int]], other: list[tuple[Any, int]]) -> bool:
    """Return whether the outputs of two calls, both still referenced, share an address."""
    return any(
        a == b and tensor.numel() > 0 for (tensor, a), (_, b) in zip(one, other, strict=False)
    )


def use_compiler(
    *,
    skip_isa_check: bool,
    device: str = "cpu",
    compiler: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
) -> None:
    """Compile a throwaway, so that one-time costs do not count as compile time.

    These are: importing Inductor, finding the compiler and the vector instructions, and
    precompiling headers.
    """
    import torch  # noqa: PLC0415

    if skip_isa_check:
        from torch._inductor import config  # noqa: PLC0415

        config.cpp.vec_isa_ok = True
    compiled = compiler(throwaway) if compiler else torch.compile(throwaway, dynamic=False)
    compiled(torch.ones(64, device=device))


def throwaway(x: Any) -> Any:  # noqa: ANN401  (torch is not imported at the top of this module)
    """Compute something trivial, to be compiled once."""
    return x * 2 + 1


def picked_instructions() -> str | None:
    """Return the vector instructions that Inductor picked; ``None`` before PyTorch 2.5."""
    try:
        from torch._inductor.cpu_vec_isa import pick_vec_isa  # noqa: PLC0415  (since 2.5)
    except ImportError:
        return None
    return str(pick_vec_isa())


def class_of(error: Exception, phase: Phase, job: Job) -> FailureClass:
    """Return the failure class of the exception that ended the case."""
    if isinstance(error, CaseError):
        return error.failure_class
    package = sys.modules.get(job.workloads)
    if package is not None and package.__file__ is not None:  # a folder of benchmarks
        from ivhl.measure.sources import is_of_project  # noqa: PLC0415  (only where one fails)

        def is_theirs(top: str) -> bool:
            return top != job.workloads and is_of_project(top, job.workloads, job.project)

        if lacks(error, is_theirs, Path(package.__file__).parent):
            return "absent"
    return classify(error, phase)


def refuse_other_version(case: Case, job: Job) -> None:
    """Refuse a workload that this commit declares otherwise than the one that is asked for.

    Raises:
        CaseError: If its version is another one.
    """
    version = case.workload.version
    if job.version not in (None, version):
        message = f"{job.workload}: this commit has version {version}, not {job.version}"
        raise CaseError("absent", message)


def sources_of(case: Case, job: Job) -> dict[str, str | None]:
    """Return the hashes of the sources that the case reaches; empty, with a warning, on errors."""
    from ivhl.measure.sources import reached_sources  # noqa: PLC0415  (only once per case)

    gc.disable()  # each collection would traverse all objects of torch
    try:
        found = reached_sources(case, job.workloads, job.project)
    except Exception as error:  # noqa: BLE001  (the project's sources may hold anything)
        warnings.warn(f"ivhl: sources were not hashed: {error}", stacklevel=1)
        return {}
    return {"sources": found.project, "benchmark": found.benchmark}


def gil_is_on() -> bool | None:
    """Return whether the GIL is on; ``None`` on a Python that is not free-threaded.

    Importing an extension that does not declare free-threading support switches it on.
    """
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    return bool(getattr(sys, "_is_gil_enabled")())  # noqa: B009  (since Python 3.13)


def number(value: float | None) -> str:
    """Return three significant digits, or ``not finite``."""
    return "not finite" if value is None else f"{value:.3g}"


if __name__ == "__main__":
    main(sys.argv)
