"""The child process: measures one case and tells what it finds as it goes.

It appends one line of JSON to the journal for everything it learns, so that a crash, a hang or a
kill loses only what had not been measured yet. ``runner`` makes the record from the journal.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import time
import warnings
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ivhl.measure.failures import classify, message_of, place_of, qualified_name
from ivhl.measure.job import Job, choose_clock
from ivhl.workload import (
    DYNAMO_ENGINES,
    INDUCTOR_ENGINES,
    Case,
    load_workloads,
    resolve,
    select_cases,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.measure.dynamo import Watch
    from ivhl.records import FailureClass, OutputError, Phase

SEED = 1337


class CaseError(Exception):
    """A finding that ends the case, with its class already known."""

    def __init__(self, failure_class: FailureClass, message: str) -> None:
        super().__init__(message)
        self.failure_class = failure_class


class Journal:
    """Append-only findings; every line is on disk before the next step starts."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self.phase: Phase = "import"

    def close(self) -> None:
        """Let go of the file; everything is in it already."""
        self._file.close()

    def enter(self, phase: Phase) -> None:
        """Note that a phase begins."""
        self.phase = phase
        self._write({"phase": phase})

    def note(self, **findings: Any) -> None:  # noqa: ANN401  (JSON)
        """Note findings by the name they have in the record."""
        self._write({"findings": findings})

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, allow_nan=False) + "\n")


def main(argv: list[str]) -> int:
    """Measure the case that ``argv[1]`` describes; 0 also when the case fails."""
    job = Job(**json.loads(argv[1]))
    die_with(job.parent)
    journal = Journal(Path(job.journal))
    seen: Counter[str] = Counter()

    def keep(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        text = " ".join(str(message).split())[:400]
        seen[f"{category.__name__}: {text}"] += 1

    warnings.showwarning = keep
    journal.enter("import")
    try:
        (case,) = select_cases(
            load_workloads(job.workloads),
            names=[job.workload],
            size=job.size,
            variant=job.variant,
            device=job.device,
            mode=job.mode,
        )
        Measurement(job, case, journal).run()
    except Exception as error:  # noqa: BLE001  (whatever it is, it is this case's result)
        journal.note(
            failure={
                "phase": journal.phase,
                "failure_class": error.failure_class
                if isinstance(error, CaseError)
                else classify(error, journal.phase),
                "exception": "" if isinstance(error, CaseError) else qualified_name(error),
                "message": message_of(error),
                "where": place_of(error),
            }
        )
    journal.note(
        warnings=[{"text": t, "count": n} for t, n in seen.most_common(50)],
        done=True,
    )
    journal.close()
    return 0


class Measurement:
    """The phases of one case, in order."""

    def __init__(self, job: Job, case: Case, journal: Journal) -> None:
        self.job = job
        self.case = case
        self.journal = journal

    def run(self) -> None:
        """Go through all phases; raises whatever a phase raises."""
        self._import_torch()
        if self.job.stage == "seed":
            self.journal.enter("compile")
            self._compile_throwaway(self._compiler())
            self.journal.note(isa=picked_instructions())
            return
        self._import_workload()
        self._make_inputs()
        if self.job.stage == "warm":
            self._compile_warm()
            return
        self._run_reference()
        self._run_eager()
        self._compile_cold()
        self._judge()
        self._time()
        self._measure_memory()

    def _import_torch(self) -> None:
        import torch  # noqa: PLC0415  (importing torch is a phase that may fail)

        torch.set_num_threads(self.job.threads)
        torch.manual_seed(SEED)
        self.torch = torch
        self.device = torch.device(self.job.device)
        self.dtype: torch.dtype = getattr(torch, self.case.workload.dtype)
        self.variant_dtype: torch.dtype = getattr(torch, self.case.dtype)
        device_name = "cpu"
        if self.device.type == "cuda":
            device_name = f"cuda {torch.cuda.get_device_name(self.device)}"
        self.journal.note(device=device_name, torch_full=torch.__version__, gil=gil_is_on())

    def _import_workload(self) -> None:
        workload, variant = self.case.workload, self.case.variant
        self._inputs_of: Callable[..., Any] = resolve(workload.make_inputs)
        self._eager: Callable[..., Any] = resolve(workload.eager)
        self._reference: Callable[..., Any] = resolve(workload.reference)
        self._call: Callable[..., Any] = resolve(variant.call)
        self._prepare = resolve(variant.prepare) if variant.prepare else lambda *inputs: inputs
        self._finish = resolve(variant.finish) if variant.finish else lambda outputs: outputs

    def _make_inputs(self) -> None:
        self.journal.enter("inputs")
        torch = self.torch
        generator = torch.Generator().manual_seed(SEED)
        size = self.case.workload.sizes[self.case.size]
        drawn = self._inputs_of(size, generator)
        self.inputs = cast(drawn, self.dtype, self.device)
        inputs = self.inputs
        if self.variant_dtype != self.dtype:
            inputs = cast(self.inputs, self.variant_dtype, self.device)
        prepared = self._prepare(*inputs)
        self.variant_inputs = prepared if isinstance(prepared, tuple) else (prepared,)
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def _run_reference(self) -> None:
        from ivhl.measure.accuracy import flatten  # noqa: PLC0415  (imports torch)

        self.journal.enter("reference")
        # Of the rounded inputs: rounding them is not an error of the code under test.
        exact = cast(self.inputs, self.torch.float64, self.torch.device("cpu"))
        self.references = [r.detach() for r in flatten(self._reference(*exact))]
        if not all(bool(self.torch.isfinite(r).all()) for r in self.references):
            raise CaseError("reference", "the float64 reference is not finite on these inputs")

    def _run_eager(self) -> None:
        from ivhl.measure.accuracy import eager_is_sound, flatten, judge_eager  # noqa: PLC0415
        from ivhl.measure.timing import QUICK  # noqa: PLC0415

        self.journal.enter("eager")
        before = cast(self.inputs, self.dtype, self.device)
        outputs = flatten(self._eager(*self.inputs))
        changed = not all(
            same(a, b) for a, b in zip(flatten(self.inputs), flatten(before), strict=True)
        )
        if changed:
            raise CaseError(
                "eager_failed", "eager changes its inputs, so no two calls compute the same"
            )
        self.errors = judge_eager(self.case.workload.outputs, outputs, self.references)
        self._note_accuracy(self.errors)
        for error in self.errors:
            if not eager_is_sound(error):
                raise CaseError(
                    "eager_failed",
                    f"eager's {error.output} is not the reference: RMSE {error.eager_rmse} at a "
                    f"scale of {error.scale}",
                )
        # The variant's own source must run eagerly too, or the compiler would get the blame.
        self.formulation = self._formulation(lambda function: function)
        outputs = self.formulation(*self.variant_inputs)
        # In another precision eager's error says nothing; this one says what that precision costs.
        self.anchors = (
            None
            if self.variant_dtype == self.dtype
            else judge_eager(self.case.workload.outputs, self._detached(outputs), self.references)
        )
        # Before anything is compiled, so that a case that cannot be compiled keeps its eager times.
        self._note_arms({"eager": self._run, "eager_again": self._run}, QUICK)

    def _compiler(self) -> Callable[..., Any]:
        variant = self.case.variant
        arguments: dict[str, Any] = {"dynamic": variant.dynamic, "fullgraph": variant.fullgraph}
        if variant.mode != "default":
            arguments["mode"] = variant.mode
        return lambda function: self.torch.compile(function, **arguments)

    def _formulation(self, compiler: Callable[..., Any]) -> Callable[..., Any]:
        if self.case.variant.compiles == "parts":
            return self._call(compiler)  # type: ignore[no-any-return]
        return compiler(self._call)  # type: ignore[no-any-return]

    def _engine(self) -> Callable[..., Any]:
        """Return what the variant calls a compiler; ``torch.compile`` unless it says otherwise."""
        from ivhl.measure.engine import compiler_of  # noqa: PLC0415  (imports torch)

        return compiler_of(self.case.variant.engine, self._compiler())

    def _compile_throwaway(self, compiler: Callable[..., Any]) -> None:
        """Pay for what every process pays once, so that it is not taken for compile time.

        That is importing Inductor, finding the compiler and the vector instructions, precompiled
        headers, worker processes.
        """
        if self.job.skip_isa_check and self.case.variant.engine in INDUCTOR_ENGINES:
            from torch._inductor import config  # noqa: PLC0415

            config.cpp.vec_isa_ok = True
        compiler(throwaway)(self.torch.ones(64, device=self.device))

    def _first_call(self) -> tuple[Any, float]:
        """Compile, run once, and return the output and the seconds of both."""
        engine = self._engine()
        self._compile_throwaway(engine)
        self.watch: Watch | None = None
        # Without Dynamo there is nothing to watch, and it need not even support this Python.
        if self.case.variant.engine in DYNAMO_ENGINES:
            self.torch._dynamo.reset()  # noqa: SLF001
            from ivhl.measure.dynamo import Watch  # noqa: PLC0415

            self.watch = Watch()
        self._synchronize()
        began = time.perf_counter()
        self.compiled = self._formulation(engine)
        outputs = self.compiled(*self.variant_inputs)
        self._synchronize()
        return outputs, time.perf_counter() - began

    def _compile_warm(self) -> None:
        self.journal.enter("compile")
        _, seconds = self._first_call()
        self.journal.note(warm_s=seconds)

    def _compile_cold(self) -> None:
        self.journal.enter("compile")
        outputs, self.cold_s = self._first_call()
        self.first_outputs = self._detached(outputs)
        # CUDA graphs record at the second or third call.
        for _ in range(3):
            self.compiled(*self.variant_inputs)
        self._synchronize()
        self._note_compile()
        if self.watch is None:
            return
        total, ok = self.watch.frames()
        graphs, captured = self.watch.graphs()
        breaks = self.watch.graph_breaks()
        if not graphs or not captured or (ok < total and not breaks):
            raise CaseError(
                "not_compiled",
                f"Dynamo looked at {total} frames and compiled {ok}, with {captured} operations in "
                f"{graphs} graphs; the rest ran eagerly without a word",
            )

    def _judge(self) -> None:
        self.journal.enter("accuracy")
        self._judge_outputs(self.first_outputs, "the first call's")

    def _judge_outputs(self, outputs: list[Any], which: str) -> None:
        from ivhl.measure.accuracy import judge_compiled  # noqa: PLC0415

        workload = self.case.workload
        try:
            judged = judge_compiled(
                self.errors,
                outputs,
                self.references,
                dtype=self.case.dtype,
                tolerance=workload.tolerance,
                anchors=self.anchors,
            )
        except ValueError as mismatch:
            raise CaseError(
                "wrong", f"{which} output cannot be compared: {mismatch}"
            ) from mismatch
        self._note_accuracy(judged)
        for error in judged:
            if not error.passed:
                anchor = f"eager has {number(error.eager_rmse)}"
                if self.anchors is not None:
                    anchor = f"its source, eager in {self.case.dtype}, has "
                    anchor += number(error.anchor_rmse)
                raise CaseError(
                    "wrong",
                    f"{which} {error.output} has an RMSE of {number(error.compiled_rmse)} against "
                    f"float64; {anchor}, allowed is {number(error.limit_rmse)}",
                )

    def _time(self) -> None:
        from ivhl.measure.timing import FULL, QUICK  # noqa: PLC0415

        self.journal.enter("timing")
        arms: dict[str, Callable[[], Any]] = {
            "eager": self._run,
            "eager_again": self._run,
            "compiled": lambda: self.compiled(*self.variant_inputs),
        }
        variant = self.case.variant
        # Where the variant is that very source run eagerly, it is the arm ``compiled`` already.
        if variant.engine != "eager" and (
            variant.call != self.case.workload.eager or self.anchors is not None
        ):
            arms["formulation_eager"] = lambda: self.formulation(*self.variant_inputs)
        self._note_arms(arms, QUICK if self.job.quick else FULL)
        self._note_compile()
        # Compiled code that goes wrong later (a reused buffer, a stale guard) is wrong all the same.
        last = self._detached(self.compiled(*self.variant_inputs))
        self._judge_outputs(last, "the last call's")

    def _measure_memory(self) -> None:
        from ivhl.measure.memory import peak_bytes  # noqa: PLC0415

        self.journal.enter("memory")
        try:
            memory = {
                "eager_peak": peak_bytes(self._run, self.device),
                "compiled_peak": peak_bytes(
                    lambda: self.compiled(*self.variant_inputs), self.device
                ),
            }
        except Exception as error:  # noqa: BLE001  (the profiler's trouble is not the case's)
            warnings.warn(f"ivhl: memory was not measured: {error}", stacklevel=1)
        else:
            self.journal.note(memory=memory)

    def _run(self) -> Any:  # noqa: ANN401  (any pytree)
        return self._eager(*self.inputs)

    def _detached(self, outputs: Any) -> list[Any]:  # noqa: ANN401
        """Return copies: CUDA graphs write the next result into the same memory."""
        from ivhl.measure.accuracy import flatten  # noqa: PLC0415

        return [t.detach().clone() for t in flatten(self._finish(outputs))]

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)

    def _note_arms(self, arms: dict[str, Callable[[], Any]], effort: Any) -> None:  # noqa: ANN401
        from ivhl.measure.timing import time_arms  # noqa: PLC0415

        clock = choose_clock(self.device.type, self.job.threads)
        timed = time_arms(arms, clock=clock, effort=effort, seed=SEED)
        self.journal.note(clock=clock, **{name: asdict(arm) for name, arm in timed.items()})

    def _note_compile(self) -> None:
        facts: dict[str, Any] = {"cold_s": self.cold_s, "warm_s": None}
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
        self.journal.note(accuracy=[asdict(e) for e in errors])


def throwaway(x: Any) -> Any:  # noqa: ANN401  (torch is not imported at the top of this module)
    """Stand for any compiled function; what it computes does not matter."""
    return x * 2 + 1


def same(a: Any, b: Any) -> bool:  # noqa: ANN401  (tensors)
    """Say whether two tensors are equal, NaN being equal to itself."""
    return bool(((a == b) | ((a != a) & (b != b))).all())  # noqa: PLR0124


def picked_instructions() -> str | None:
    """Return the vector instructions that Inductor picked, or ``None`` where it does not tell."""
    try:
        from torch._inductor.cpu_vec_isa import pick_vec_isa  # noqa: PLC0415  (since 2.5)
    except ImportError:
        return None
    return str(pick_vec_isa())


def gil_is_on() -> bool | None:
    """Say whether the interpreter has its lock; ``None`` where it always has.

    An extension that does not say that it can do without switches it on when it is imported.
    """
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    return bool(getattr(sys, "_is_gil_enabled")())  # noqa: B009  (since Python 3.13)


def die_with(parent: int) -> None:
    """Have Linux kill this process when its parent dies: nobody else would end it then."""
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415
        import signal  # noqa: PLC0415

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we could ask
        sys.exit(1)


def cast(inputs: Any, dtype: Any, device: Any) -> Any:  # noqa: ANN401  (any pytree)
    """Return a copy of the nest with floating and complex tensors in the precision of ``dtype``."""
    import torch  # noqa: PLC0415

    if isinstance(inputs, torch.Tensor):
        if inputs.is_complex():
            wide = torch.complex128 if dtype == torch.float64 else torch.complex64
            return inputs.to(device=device, dtype=wide, copy=True)
        if inputs.is_floating_point():
            return inputs.to(device=device, dtype=dtype, copy=True)
        return inputs.to(device=device, copy=True)
    if isinstance(inputs, dict):
        return {k: cast(v, dtype, device) for k, v in inputs.items()}
    if isinstance(inputs, (tuple, list)):
        return type(inputs)(cast(v, dtype, device) for v in inputs)
    return inputs


def number(value: float | None) -> str:
    """Return three significant digits, or ``not finite``."""
    return "not finite" if value is None else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main(sys.argv))
