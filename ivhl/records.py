"""What one run leaves behind: plain dataclasses, standard library only.

Written as one line of JSON inside the cell (``to_json``), read back on the tracking side with
``pydantic.TypeAdapter(RunRecord)``. One definition, so the two sides cannot disagree. Seconds and
bytes throughout; a number that does not exist is ``None``, never ``-1`` or ``NaN``.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = "ivhl.run/2"
# Those that are read, oldest first. What a newer one added is optional: one reader does for all.
SCHEMAS = ("ivhl.run/1", SCHEMA)

FailureClass = Literal[
    "support_gate",  # Dynamo or torch.compile says that it does not support this Python
    "unavailable",  # no distribution of this PyTorch for this Python
    "environment",  # the cell could not be created from its lock
    "build",  # the project at this commit could not be built or installed
    "import",  # torch or the workload's module does not import
    "inputs",  # make_inputs raised
    "reference",  # the float64 reference raised: the workload is at fault
    "eager_failed",  # the eager code raised or is wrong: never blamed on the compiler
    "unsupported",  # this release or device lacks the engine, or an operation in the dtype
    "graph_break",  # fullgraph was asked for and Dynamo broke the graph
    "backend_compile",  # Inductor, Triton or the C++ compiler failed
    "compile",  # anything else raised while compiling or at a compiled call
    "recompile_limit",  # Dynamo gave up recompiling
    "recompiles",  # Dynamo went on compiling while the variant was timed
    "not_compiled",  # Dynamo skipped the code and ran it eagerly, silently
    "side_effect",  # changes its inputs, or the process under which the other arms are measured
    "remembers",  # gives back what it kept from an earlier call
    "wrong",  # compiled output is outside the error budget
    "timeout",
    "crash",  # ended by a signal, or exited without a word
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


class _Strict:
    __slots__ = ()
    # JSON knows no NaN and no Infinity, but pydantic's reader does.
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval(_Strict):
    """An estimate with its confidence interval, e.g. a speedup of 2.1 in [2.0, 2.2]."""

    value: float
    low: float
    high: float
    confidence: float
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm(_Strict):
    """Raw samples of one arm of the comparison; sample *i* of every arm is of the same round.

    Attributes:
        calls: Calls per sample (block length), in the first process.
        samples_s: Seconds **per call**, one entry per round, by the clock of the record.
        wall_s: The same as elapsed time; ``None`` in records of ``ivhl.run/1``.
        cpu_s: The same as CPU time of the process and its descendants.
    """

    calls: int
    samples_s: tuple[float, ...]
    wall_s: tuple[float, ...] | None = None
    cpu_s: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted(_Strict):
    """A reason, a warning or a message, and how often it came."""

    text: str
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileFacts(_Strict):
    """What was done before the second call. What Dynamo counts is ``None`` without Dynamo.

    Attributes:
        cold_s: First call with an empty private cache, after a throwaway compile; with one run, and
            for TorchScript with the runs that its profiling executor learns from. ``None`` where it
            was never measured.
        warm_s: First call of a second process that finds the first one's cache on disk, the median
            of several processes; ``None`` where there is no such cache.
        cold_cpu_s: CPU seconds of the same as ``cold_s``, with all processes that compile.
        warm_cpu_s: CPU seconds of the same as ``warm_s``.
        cold_at: When ``cold_s`` was measured, if a cache that an earlier run left was used.
        frames_total: Frames that Dynamo looked at.
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
class OutputError(_Strict):
    """Distance of one output from the float64 reference, absolute.

    Attributes:
        scale: Largest absolute value of the reference.
        limit_rmse: RMSE that the compiled output may have by the fp64-anchored rule.
        limit_max: Error that its worst element may have; ``None`` in records of ``ivhl.run/1``.
        anchor_rmse: RMSE of the variant's own source run eagerly in the variant's dtype; ``None``
            where that is the workload's, and eager is the anchor.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory(_Strict):
    """Most bytes that one call held beyond its inputs, outputs included."""

    eager_peak: int | None
    compiled_peak: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure(_Strict):
    """Why there is no speedup.

    Attributes:
        exception: Exception type with its module, or a signal's name.
        where: Innermost line of the workload's own code, ``file:line``, without folders.
        output_tail: End of what the process printed.
    """

    phase: Phase
    failure_class: FailureClass
    exception: str
    message: str
    where: str
    output_tail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell(_Strict):
    """An environment of the matrix. ``id`` is made from the fields and never parsed back."""

    id: str
    python: str
    torch: str
    lock_sha256: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine(_Strict):
    """Where it ran, as far as it matters for comparing."""

    name: str
    cpu: str
    n_cpus: int
    memory_bytes: int
    system: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation(_Strict):
    """What was seen of one thing that decides how steady a machine is, as ``ivhl doctor`` says it.

    Attributes:
        check: What was looked at, e.g. ``governor``.
        level: ``warning`` is what makes numbers noisier, ``wrong`` what makes them mean nothing.
        seen: What was seen: a short text without paths and names of hosts.
    """

    check: str
    level: Level
    seen: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel(_Strict):
    """What tells an installed package from others of the same version.

    Attributes:
        build: Build tag of the wheel; ``None`` where it has none.
        tags: Pythons and platforms that it is for, e.g. ``cp312-cp312-manylinux_2_28_x86_64``.
        record_sha256: Hash of the names and hashes of the files in it; ``None`` where the
            installation does not list them.
    """

    name: str
    version: str
    build: str | None
    tags: tuple[str, ...]
    record_sha256: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Conditions(_Strict):
    """How it ran.

    Attributes:
        device: ``cpu``, or ``cuda`` with the name of the card.
        clock: ``cpu`` is CPU time of the process, used with one thread on the CPU because other
            load does not count in it; ``wall`` is elapsed time; ``cuda_event`` is the device's.
        load_average: One-minute load average before the case.
        instrument: Version of the way of measuring, ``"4"``; in ``ivhl.run/1`` a digest of the
            measuring code. ``ivhl.instrument.version_of`` makes the two comparable.
        packages: Every package of the environment as ``name==version``.
        image: Digest of the image whose container it ran in, ``sha256:...``; ``None`` if in none.
        stability: What was seen of the machine before the first case that the run measured in this
            cell; ``None`` where nobody looked, as in older records.
        wheels: What is installed of PyTorch and Triton; ``None`` where nobody looked.
        gil: Whether the global interpreter lock was on after torch was imported, in a Python that
            can do without it; ``None`` in any other.
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
    stability: tuple[Observation, ...] | None = None
    wheels: tuple[Wheel, ...] | None = None
    gil: bool | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord(_Strict):
    """One case in one cell at one commit, measured or failed.

    ``speedup`` is there exactly when ``failure`` is not. What was measured before a failure stays.

    Attributes:
        commit: Commit of the project under test, 40 hex digits.
        eager: The baseline; ``eager_again`` is the same code once more, for the noise floor.
        formulation_eager: The variant's own source run eagerly, where it is not the baseline's.
        speedup: Baseline eager over compiled, from pairs.
        aa: ``eager`` over ``eager_again`` from the same rounds: what the noise alone does.
        formulation_speedup: ``formulation_eager`` over compiled: what compiling alone gives.
        compiled: The variant, whatever its engine.
        dtype: That of the variant; ``eager`` runs in the workload's.
        engine: ``ivhl.workload.Engine``; records made before 2026-11-21 hold none.
        sources: Hash of the project's code and data that the case reaches, and of its declaration
            (``ivhl.measure.sources``); ``None`` where nobody looked.
        command: Repeats this record.
        rounds: Rounds in each process; samples of all processes follow one another. Empty in records
            of ``ivhl.run/1``, where all rounds are of one process.
        draws: How many draws of the inputs were gone through.
        prepare_s: Seconds of ``Variant.prepare``, which are in no time.
        finish_s: Seconds of ``Variant.finish``, likewise.
        phase_s: Seconds of all processes of the case by phase.
        same_as: Commit at which it was measured, where this commit only has the same sources; the
            time of recording is that of the measurement.
    """

    schema: Literal["ivhl.run/1", "ivhl.run/2"] = "ivhl.run/2"
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
    rounds: tuple[int, ...] = ()
    draws: int | None = None
    prepare_s: float | None = None
    finish_s: float | None = None
    phase_s: dict[str, float] | None = None
    same_as: str | None = None

    def __post_init__(self) -> None:
        """Refuse a record that claims both, or neither.

        Raises:
            ValueError: If ``speedup`` and ``failure`` are both there or both missing.
        """
        if (self.speedup is None) == (self.failure is None):
            raise ValueError("a record has either a speedup or a failure")


def to_json(record: RunRecord) -> str:
    """Return the record as one line of JSON.

    Raises:
        ValueError: If a number in it is NaN or infinite.
    """
    data = asdict(record)
    # What may be missing is left out, as it was before there were such fields.
    optional = (
        (data["conditions"], ("image", "stability", "wheels", "gil")),
        (data, ("sources", "rounds", "draws", "prepare_s", "finish_s", "phase_s", "same_as")),
    )
    for part, names in optional:
        for name in names:
            if part[name] in (None, ()):
                del part[name]
    return json.dumps(data, allow_nan=False, sort_keys=True, separators=(",", ":"))


def append_record(path: Path, record: RunRecord) -> None:
    """Append the record to the file, as a whole line or not at all that a reader would mistake.

    The line is written in one call and forced to disk. A file whose last line was cut off (a full
    disk, a killed machine) gets a line break first, so that the damage stays in that one line.

    Raises:
        OSError: If the disk is full or the folder cannot be written.
    """
    append_line(path, to_json(record))


def append_line(path: Path, line: str) -> None:
    """Append one record as it is written, see ``append_record``.

    Raises:
        OSError: If the disk is full or the folder cannot be written.
    """
    data = (line + "\n").encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                data = b"\n" + data
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def record_file(results: Path, machine: str, commit: str, cell_id: str) -> Path:
    """Return where the records of one machine, commit and cell are kept.

    Not ``*.json``: asv reads every such file under its results folder as one of its own.
    """
    return results / machine / "records" / f"{commit[:8]}-{cell_id}.jsonl"
