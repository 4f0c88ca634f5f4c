"""The record of one case: plain dataclasses, standard library only.

A cell writes it as one line of JSON (``to_json``); ``records.reader`` reads it. Both use this one
definition. Times are in seconds, sizes in bytes; a missing number is ``None``, never ``-1`` or
``NaN``.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Final, Literal, get_args

SCHEMA: Final = "ivhl.run/5"
JUMPS: Final = "ivhl: rounding decides"  # how a warning begins that names outputs that jump
LARGEST_VALUE: Final = 1e75  # of a number that is not counted; its cube is a number, too
_HALF = re.compile("[\ud800-\udfff]")

FailureClass = Literal[
    "support_gate",  # Dynamo or torch.compile refuses to run on this Python
    "unavailable",  # no distribution of this PyTorch for this Python
    "environment",  # no cell from its lock, a full disk, or no C++ compiler
    "build",  # the project at this commit could not be built or installed
    "absent",  # this commit lacks the code that the benchmark measures
    "import",  # torch or the workload's module does not import
    "inputs",  # make_inputs raised
    "reference",  # the float64 reference raised: the workload is at fault
    "eager_failed",  # the eager code raised or is wrong: never blamed on the compiler
    "unsupported",  # this release or device lacks the engine, or an operation in the dtype
    "graph_break",  # the variant sets fullgraph, and Dynamo broke the graph
    "backend_compile",  # Inductor, Triton or the C++ compiler failed
    "compile",  # anything else raised while compiling or at a compiled call
    "recompile_limit",  # Dynamo gave up recompiling
    "recompiles",  # Dynamo recompiled while the variant was timed
    "not_compiled",  # Dynamo skipped the code and ran it eagerly, without an error
    "side_effect",  # changes its inputs, or the process in which the other arms are measured
    "remembers",  # returns a result that it kept from an earlier call
    "wrong",  # compiled output exceeds the error budget
    "timeout",
    "crash",  # ended by a signal, or exited without a result
    "out_of_memory",
]
FAILURE_CLASSES: tuple[FailureClass, ...] = get_args(FailureClass)

Phase = Literal[
    "environment",
    "build",
    "import",
    "inputs",
    "reference",
    "eager",
    "compile",
    "accuracy",
    "timing",
    "memory",
]

Level = Literal["ok", "warning", "wrong"]

# What outputs were judged by, strongest first.
Reference = Literal[
    "independent",  # another formula of the same quantity, in float64
    "float64",  # the same code, run in float64: shows what compiling adds, not what the code lacks
    "tolerance",  # eager itself, by an absolute and relative tolerance for each element
    "cosine",  # eager itself, by the angle between the outputs: PyTorch's rule for whole models
]
# What a call does with a model.
Passes = Literal["forward", "backward", "step"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """An estimate with its confidence interval, e.g. a speedup of 2.1 in [2.0, 2.2]."""

    value: float
    low: float
    high: float
    confidence: float
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """Raw samples of one arm; sample *i* of every arm comes from the same round.

    Attributes:
        calls: Calls per sample (block length), in the first process.
        samples_s: Seconds **per call**, one entry per round, by the clock of the record.
        wall_s: Elapsed time of the same calls; ``None`` in records of ``ivhl.run/1``.
        cpu_s: CPU time of the process and its descendants for the same calls.
    """

    calls: int
    samples_s: tuple[float, ...]
    wall_s: tuple[float, ...] | None = None
    cpu_s: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """Seconds of fixed work beside a case: how fast the machine was (``measure.calibration``).

    Each process of the case measures it before its first round and after its last one.

    Attributes:
        memory_s: A copy in torch that does not fit into the cache. On a virtual machine it is
            noisier than what it would correct, so it corrects nothing.
        code_s: Fixed machine code (``measure.yardstick``), the same in every cell.
        compute_s: The sine of torch, on a GPU, where the machine code cannot run, and on the CPU in
            records made before 2026-11-28.
        c_s: Hashing by Python's standard library; only in records made before 2026-11-26. Another
            Python may have other code for it, so nothing is judged by it.
    """

    memory_s: tuple[float, ...]
    code_s: tuple[float, ...] = ()
    compute_s: tuple[float, ...] = ()
    c_s: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """A reason, a warning or a message, and how often it occurred."""

    text: str
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileFacts:
    """Facts about compiling. Dynamo's counts are ``None`` for engines without Dynamo.

    Attributes:
        cold_s: Seconds of the first call with an empty private cache, after a throwaway compile.
            Includes one run, and for TorchScript the runs of its profiling executor. ``None`` if it
            was never measured.
        warm_s: Seconds of the first call of a second process with the first one's cache on disk,
            the median of several processes; ``None`` if the engine has no such cache.
        cold_cpu_s: CPU seconds of ``cold_s``, including all processes that compile.
        warm_cpu_s: CPU seconds of ``warm_s``.
        cold_at: When ``cold_s`` was measured, if the compile cache of an earlier run was used.
        frames_total: Frames that Dynamo saw.
        frames_ok: Frames that it compiled.
        graphs: Graphs handed to the backend.
        calls_captured: Operations in these graphs.
    """

    cold_s: float | None
    warm_s: float | None
    frames_total: int | None
    frames_ok: int | None
    graphs: int | None
    calls_captured: int | None
    graph_breaks: tuple[Counted, ...]
    recompiles: tuple[Counted, ...]
    cold_cpu_s: float | None = None
    warm_cpu_s: float | None = None
    cold_at: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputError:
    """Absolute error of one output against its reference.

    Attributes:
        output: Its name in the declaration, or the path that leads to it, e.g. ``output.logits``,
            ``grad.fc.weight`` or ``optimizer.exp_avg.fc.weight``.
        scale: Largest absolute value of the reference.
        limit_rmse: Largest RMSE of the compiled output that passes the fp64-anchored rule.
        limit_max: Largest error of an element that passes; ``None`` in ``ivhl.run/1``.
        anchor_rmse: RMSE of the variant's own source run eagerly in the variant's dtype; ``None``
            if that is the workload's dtype, so that eager is the anchor.
        cosine: Cosine of the angle between compiled and eager, where that is the rule.
        dtype: Of what eager code returns, e.g. ``float32``; ``None`` in older records.
        shape: Of what eager code returns; ``None`` in older records.
        values: Up to 8 finite numbers of what eager code returns on the first input set; ``None``
            in older records and of code that draws random numbers.
    """

    output: str
    scale: float
    eager_max: float | None
    eager_rmse: float | None
    compiled_max: float | None
    compiled_rmse: float | None
    limit_rmse: float | None
    passed: bool | None
    anchor_rmse: float | None = None
    limit_max: float | None = None
    cosine: float | None = None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    values: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Most bytes that one call held beyond its inputs, outputs included."""

    eager_peak: int | None
    compiled_peak: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernels:
    """What one call ran on the GPU: how many kernels and copies, and their seconds together.

    The seconds are those of a warm L2 cache, and with the profiler beside them: less than a call
    takes where launching limits it.
    """

    eager: int
    compiled: int
    eager_s: float
    compiled_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why there is no speedup.

    Attributes:
        exception: Exception type with its module, or a signal's name.
        where: Innermost line of the workload's own code, ``file:line``, without folders.
        output_tail: End of the process's output.
    """

    phase: Phase
    failure_class: FailureClass
    exception: str
    message: str
    where: str
    output_tail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """An environment of the matrix. ``id`` is derived from the fields and never parsed."""

    id: str
    python: str
    torch: str
    lock_sha256: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """The machine of a record: what must match for results to be comparable."""

    name: str
    cpu: str
    n_cpus: int
    memory_bytes: int
    system: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedObservation:
    """What a record keeps of one observation about the machine's stability.

    Attributes:
        check: What was checked, e.g. ``governor``.
        level: ``warning`` makes numbers noisier, ``wrong`` makes them meaningless.
        seen: What was observed: a short text without paths or host names.
    """

    check: str
    level: Level
    seen: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    """Identifies an installed wheel among others of the same version.

    Attributes:
        build: Build tag of the wheel; ``None`` if it has none.
        tags: Its Pythons and platforms, e.g. ``cp312-cp312-manylinux_2_28_x86_64``.
        record_sha256: Hash of the names and hashes of its files; ``None`` if the installation does
            not list them.
    """

    name: str
    version: str
    build: str | None
    tags: tuple[str, ...]
    record_sha256: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Conditions:
    """The conditions under which a case was measured.

    Attributes:
        device: ``cpu``, or the type of another device, as ``cuda``, with its name.
        clock: ``cpu``, CPU time of the process, used with one thread on the CPU because it excludes
            other load; ``wall``, elapsed time; ``cuda_event``, the device's time.
        load_average: One-minute load average before the case.
        instrument: Version of the instrument, ``"4"``; in ``ivhl.run/1`` a digest of the measuring
            code. ``ivhl.instrument.version_of`` makes the two comparable.
        packages: Every package of the environment as ``name==version``.
        image: Digest of the container's image, ``sha256:...``; ``None`` outside of containers.
        stability: Observations before the run's first case in this cell; ``None`` in records from
            before they were made.
        wheels: Installed wheels of PyTorch and Triton; ``None`` likewise.
        gil: Whether the GIL was on after importing torch in a free-threaded Python; ``None`` in
            other Pythons.
        flags: Settings of the compiler that were changed (``ivhl.measure.flags``).
        python_build: How the Python was built, and its C library
            (``ivhl.measure.contents.python_build``); ``None`` in records made before 2026-11-26.
        quick: Whether it says whether the case works, and not how fast: nothing was timed. Before
            instrument 4, that few samples were taken.
    """

    device: str
    threads: int
    clock: Literal["cpu", "wall", "cuda_event"]
    load_average: float | None
    instrument: str
    python_full: str
    torch_full: str | None
    packages: tuple[str, ...]
    quick: bool = False
    image: str | None = None
    stability: tuple[RecordedObservation, ...] | None = None
    wheels: tuple[Wheel, ...] | None = None
    gil: bool | None = None
    flags: tuple[str, ...] = ()
    python_build: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """One case in one cell at one commit, measured or failed.

    Exactly one of ``speedup`` and ``failure`` is set; of a quick record that works, none. A failed
    record keeps what was measured before the failure.

    Attributes:
        commit: Commit of the project under test, 40 hex digits.
        eager: The baseline; ``eager_again`` is the same code timed again, for the noise floor.
        formulation_eager: The variant's own source run eagerly, if it differs from the baseline's.
        speedup: Baseline eager over compiled, from pairs of samples.
        aa: ``eager`` over ``eager_again`` from the same rounds: the noise floor.
        formulation_speedup: ``formulation_eager`` over compiled: the effect of compiling alone.
        compiled: The variant, also if its engine does not compile.
        dtype: The variant's dtype; ``eager`` runs in the workload's.
        engine: ``ivhl.workload.Engine``; missing in records made before 2026-11-21.
        sources: Hash of the project's code and data that the case reaches
            (``ivhl.measure.sources``); ``None`` if it was not computed.
        benchmark: Hash of the benchmark's own code, data and declaration; ``None`` if ``sources``
            includes them, because the benchmarks are a part of the project.
        command: Command that repeats this measurement.
        rounds: Rounds in each process; samples are stored process after process. Empty in records
            of ``ivhl.run/1``, which have a single process.
        draws: Number of draws of the inputs that were used.
        prepare_s: Seconds of ``Variant.prepare``, which no timing includes.
        finish_s: Seconds of ``Variant.finish``, which no timing includes.
        phase_s: Seconds per phase, summed over all processes of the case.
        calibration: How fast the machine was; ``None`` in records from before it was measured.
        same_as: Commit at which it was measured, if this commit only has the same sources; the
            time of recording is then that of the measurement.
        reference: What the outputs were judged by; always ``independent`` before ``ivhl.run/4``.
        passes: What a call does with the model of the workload; ``None`` if it has none, or a call
            of its own.
        leaves: Number of outputs that were judged, if ``accuracy`` has the worst of them only.
        kernels: What a call ran on the GPU; ``None`` on the CPU, and in records from before it was
            counted.
        uncommitted: Whether the working tree differed from ``commit``; then the record answers for
            no later run. ``None`` where nobody looked, as before ``ivhl.run/4``.
    """

    schema: Literal["ivhl.run/1", "ivhl.run/2", "ivhl.run/3", "ivhl.run/4", "ivhl.run/5"] = SCHEMA
    recorded_at: str
    duration_s: float
    project: str
    commit: str
    cell: Cell
    machine: Machine
    conditions: Conditions
    workload: str
    workload_version: int
    size: str
    variant: str
    mode: str
    dtype: str
    failure: Failure | None
    speedup: Interval | None
    aa: Interval | None
    formulation_speedup: Interval | None
    eager: Arm | None
    eager_again: Arm | None
    formulation_eager: Arm | None
    compiled: Arm | None
    compile: CompileFacts | None
    accuracy: tuple[OutputError, ...]
    memory: Memory | None
    warnings: tuple[Counted, ...]
    command: str
    engine: str = "compile"
    sources: str | None = None
    benchmark: str | None = None
    rounds: tuple[int, ...] = ()
    draws: int | None = None
    prepare_s: float | None = None
    finish_s: float | None = None
    phase_s: dict[str, float] | None = None
    same_as: str | None = None
    calibration: Calibration | None = None
    reference: Reference = "independent"
    passes: Passes | None = None
    leaves: int | None = None
    kernels: Kernels | None = None
    uncommitted: bool | None = None

    def __post_init__(self) -> None:
        """Check that exactly one of ``speedup`` and ``failure`` is set.

        Raises:
            ValueError: If both are set, or neither although it was timed.
        """
        n_set = (self.speedup is not None) + (self.failure is not None)
        if n_set != 1 and not (n_set == 0 and self.conditions.quick):
            raise ValueError("a record has either a speedup or a failure")


def to_json(record: RunRecord) -> str:
    """Return the record as one line of JSON.

    Raises:
        ValueError: If a number in it is NaN or infinite.
    """
    data = asdict(record)
    # Optional fields without a value are left out, as in records older than these fields.
    optional = (
        (data["conditions"], ("image", "stability", "wheels", "gil", "flags", "python_build")),
        (data, ("sources", "benchmark", "rounds", "draws", "prepare_s", "finish_s", "phase_s")),
        (data, ("same_as", "calibration", "passes", "leaves", "kernels", "uncommitted")),
        *((error, ("cosine", "values")) for error in data["accuracy"]),
        *((found, ("code_s", "compute_s", "c_s")) for found in (data["calibration"],) if found),
    )
    for part, names in optional:
        for name in names:
            if part[name] in (None, ()):
                del part[name]
    text = json.dumps(data, allow_nan=False, sort_keys=True, separators=(",", ":"))
    if "\\ud" in text:  # perhaps half a character, as in names of files: no reader takes it
        whole = json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        whole = _HALF.sub(lambda half: f"\\\\u{ord(half[0]):04x}", whole)
        text = json.dumps(json.loads(whole), sort_keys=True, separators=(",", ":"))
    return text
