"""The parent process: one child per case, one record per child, whatever happens to it.

Torch is never imported here, so nothing that torch does can end the run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import sysconfig
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from ivhl.errors import SpecError
from ivhl.instrument import INSTRUMENT, version_of
from ivhl.measure.intervals import paired_ratio
from ivhl.measure.job import Job, choose_clock
from ivhl.measure.process import Ending, Nursery, NurseryError, memory_limit, run_group, tail
from ivhl.measure.stability import observe
from ivhl.measure.wheels import installed_wheels
from ivhl.records import (
    SCHEMAS,
    Arm,
    Cell,
    CompileFacts,
    Conditions,
    Counted,
    Failure,
    FailureClass,
    Machine,
    Memory,
    Observation,
    OutputError,
    Phase,
    RunRecord,
    append_record,
    record_file,
)
from ivhl.workload import INDUCTOR_ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ivhl.workload import Case

Step = Literal["kept", "started", "finished"]

# Workload, version, size, variant and device; commit, cell, lock, threads, quick, instrument, image.
CaseKey = tuple[str, int, str, str, str]
RunKey = tuple[str, str, str | None, int, bool, str, str | None]

# What runs in a cell beside the project, and must be the same for every commit under test.
MEASURING_CODE = (
    "__init__.py",
    "errors.py",
    "instrument.py",
    "records.py",
    "workload.py",
    "measure",
)

# glibc gives large blocks back to the kernel or keeps them by a threshold that moves with what the
# process freed before; the same eager code then takes 0.5 or 2 ms. This is where it moves to.
ALLOCATOR = "glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=67108864"
DEADLINE_S = 600.0

# What a cell gets of the caller's environment. Everything else that could change what is measured
# (OMP_*, TORCH*, LD_PRELOAD, ...) stays outside; of PYTHON* only the path of modules is kept.
KEPT_VARIABLES = (
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "CC",
    "CXX",
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """What the records of one run have in common, and how to run.

    Attributes:
        workloads: ``"module:ATTRIBUTE"`` of the tuple.
        results: Folder that holds one folder per machine.
        scratch: Folder for caches and output while running.
        repeat: Command that repeats a case, up to its ``--workload`` and so on.
        force: Measure again what already has a record of the same making.
        deadline_s: Wall seconds that one process of a case may take.
        memory_limit: Bytes; ``None`` means 90 % of the machine's.
        image: Digest of the image in whose container this is; ``None`` if it is in none.
    """

    project: str
    commit: str
    workloads: str
    cell: Cell
    machine: Machine
    results: str
    scratch: str
    repeat: str
    device: str = "cpu"
    threads: int = 1
    quick: bool = False
    force: bool = False
    deadline_s: float = DEADLINE_S
    memory_limit: int | None = None
    image: str | None = None

    @property
    def record_file(self) -> Path:
        """Where the records of this run go."""
        return record_file(Path(self.results), self.machine.name, self.commit, self.cell.id)


def run_cases(
    run: Run,
    cases: Sequence[Case],
    on_step: Callable[[Step, Case, RunRecord | None], None] = lambda *_: None,
) -> None:
    """Measure every case that has no record yet; a record is on disk before the next case starts.

    Args:
        run: What the cases have in common.
        cases: In the order in which to run them.
        on_step: Called with what happens to a case, and its record once it is there.

    Raises:
        OSError: If a record cannot be written (a full disk); what was written before stays.
    """
    newest = {} if run.force else newest_keys(run.record_file)
    Path(run.scratch).mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="seed-", dir=run.scratch) as folder,
        closing(Launcher(run, Path(folder))) as launcher,
    ):
        seed: Seed | None = None
        stability: tuple[Observation, ...] = ()
        for case in cases:
            if is_answered(run, case, newest):
                on_step("kept", case, None)
                continue
            on_step("started", case, None)
            if seed is None:
                # Only now is the machine as it was found: what follows is load of our own.
                stability = observe(run.device)
                seed = make_seed(run, case, Path(folder), launcher)
            record = measure_case(run, case, seed, launcher, stability)
            append_record(run.record_file, record)
            on_step("finished", case, record)


def is_answered(run: Run, case: Case, newest: dict[CaseKey, RunKey]) -> bool:
    """Say whether the newest record of a case was made as this run would make it.

    Only the newest counts, since it is the one that every view shows. A full one also answers a
    quick run.
    """
    found = newest.get(
        (case.workload.name, case.workload.version, case.size, case.variant.name, run.device)
    )
    cell = run.cell
    return found in {
        (run.commit, cell.id, cell.lock_sha256, run.threads, quick, str(INSTRUMENT), run.image)
        for quick in (run.quick, False)
    }


def newest_keys(path: Path) -> dict[CaseKey, RunKey]:
    """Return how the newest record of each case was made, if it need not be made again.

    Lines that cannot be read are passed over: the case is measured again, and ``ivhl results`` names
    the line.
    """
    found: dict[CaseKey, RunKey] = {}
    if not path.is_file():
        return found
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError, TypeError, KeyError, IndexError, AttributeError):
            data = json.loads(line)
            if data["schema"] not in SCHEMAS:
                continue
            cell, conditions = data["cell"], data["conditions"]
            case = (
                data["workload"],
                data["workload_version"],
                data["size"],
                data["variant"],
                conditions["device"].split()[0],
            )
            made = (
                data["commit"],
                cell["id"],
                cell["lock_sha256"],
                conditions["threads"],
                conditions["quick"],
                version_of(conditions["instrument"]),
                conditions.get("image"),  # not there outside of containers
            )
            found.pop(case, None)
            if is_final(data["failure"]):
                found[case] = made
    return found


def is_final(failure: dict[str, Any] | None) -> bool:
    """Say whether measuring again would be expected to end the same way.

    A cell that could not be made, or a process that somebody killed, deserves another try, and so
    does one that we killed for its time or memory.
    """
    if failure is None:
        return True
    # The last two depend on limits that another run may set higher.
    passing = ("environment", "build", "unavailable", "timeout", "out_of_memory")
    return failure["failure_class"] not in passing and failure["exception"] != "SIGKILL"


@dataclass(frozen=True, kw_only=True, slots=True)
class Seed:
    """What every case of a cell starts from, so that it does not pay for it again.

    Attributes:
        cache: Inductor's cache with nothing in it but precompiled headers and the throwaway.
        skip_isa_check: Whether Inductor is told that the vector instructions work.
    """

    cache: Path
    skip_isa_check: bool


class Launcher:
    """Starts the processes of cases: forked from one that has imported the compiler, or new ones.

    Forked on the CPU only, since CUDA does not survive a fork.

    Args:
        run: What the cases have in common.
        folder: Where the nursery's output and caches go.
    """

    def __init__(self, run: Run, folder: Path) -> None:
        self._run = run
        self._folder = folder
        self._may_fork = run.device == "cpu" and sys.platform == "linux"
        self._nursery: Nursery | None = None

    def launch(self, job: Job, *, environment: dict[str, str], output: Path) -> Ending:
        """Run one process of a case, whose parent is filled in here, and return how it ended."""
        nursery = self._nursery or self._start()
        parent = nursery.pid if nursery else os.getpid()
        argument = json.dumps(asdict(replace(job, parent=parent)))
        deadline_s, limit = self._run.deadline_s, self._run.memory_limit or memory_limit()
        if nursery is None:
            return run_group(
                [sys.executable, "-m", "ivhl.measure.case", argument],
                environment=environment,
                output=output,
                deadline_s=deadline_s,
                memory_limit=limit,
            )
        try:
            return nursery.run(
                ["ivhl.measure.case", argument],
                environment=environment,
                output=output,
                deadline_s=deadline_s,
                memory_limit=limit,
            )
        except NurseryError:
            # Somebody killed it, or the kernel did, and its child with it. Trying again in the same
            # folder would find the caches filled.
            self.close()
            return Ending(how="signal", code=signal.SIGKILL, seconds=0.0, peak_bytes=0)

    def close(self) -> None:
        """End the nursery; the next case starts another."""
        if self._nursery is not None:
            self._nursery.close()
            self._nursery = None

    def _start(self) -> Nursery | None:
        if not self._may_fork:
            return None
        # It is not to start Inductor's worker processes while it imports.
        environment = case_environment(self._run, self._folder) | {"TORCH_WARM_POOL": "0"}
        try:
            self._nursery = Nursery(environment=environment, output=self._folder / "nursery.txt")
        except NurseryError:
            self._may_fork = False
        return self._nursery


def make_seed(run: Run, case: Case, folder: Path, launcher: Launcher) -> Seed:
    """Compile a throwaway in an empty cache, once per cell: 10 to 20 s that are no case's own.

    Inductor up to 2.6 also starts two processes that import torch, 5 s in every process that
    compiles, to see whether the vector instructions work. It is told that they do, if then it
    picks the same ones as by itself. When all this fails, each case fails the same way, with a
    record of its own.
    """
    (folder / "inductor").mkdir()
    isa = []
    for skip in (False, True):
        seed = Seed(cache=folder / "inductor", skip_isa_check=skip)
        run_stage(run, case, folder, "seed", seed=seed, launcher=launcher)
        isa.append(read_journal(folder / "seed.jsonl")[1].get("isa"))
        (folder / "seed.jsonl").unlink()
        if isa[0] is None:
            break
    same = isa[0] is not None and isa[0] == isa[-1]
    return Seed(cache=folder / "inductor", skip_isa_check=same)


def measure_case(
    run: Run, case: Case, seed: Seed, launcher: Launcher, stability: tuple[Observation, ...]
) -> RunRecord:
    """Measure one case in processes of its own and return its record, measured or failed.

    Args:
        run: What the cases have in common.
        case: What to measure.
        seed: What to start from; it is not changed.
        launcher: What starts the processes.
        stability: What was seen of the machine before the first case.
    """
    began = time.monotonic()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="case-", dir=run.scratch) as folder:
        here = Path(folder)
        shutil.copytree(seed.cache, here / "inductor")
        ending = run_stage(run, case, here, "cold", seed=seed, launcher=launcher)
        phase, findings = read_journal(here / "cold.jsonl")
        failure = failure_of(phase, findings, ending, run, here / "cold.txt")
        if failure is None and case.variant.engine in INDUCTOR_ENGINES:
            run_stage(run, case, here, "warm", seed=seed, launcher=launcher)
            _, warm = read_journal(here / "warm.jsonl")
            findings["compile"]["warm_s"] = warm.get("warm_s")
            if "warm_s" not in warm:
                reason = (warm.get("failure") or {}).get("message") or tail(here / "warm.txt", 300)
                findings.setdefault("warnings", []).append(
                    {"text": f"ivhl: the second, warm-cache compile failed: {reason}", "count": 1}
                )
    return make_record(
        run,
        case,
        findings,
        failure,
        duration_s=time.monotonic() - began,
        load=load,
        stability=stability,
    )


def run_stage(
    run: Run, case: Case, folder: Path, stage: str, *, seed: Seed, launcher: Launcher
) -> Ending:
    """Run one child; its journal is ``<stage>.jsonl`` and its output ``<stage>.txt``."""
    job = Job(
        workloads=run.workloads,
        workload=case.workload.name,
        size=case.size,
        variant=case.variant.name,
        device=run.device,
        threads=run.threads,
        quick=run.quick,
        stage=stage,
        journal=str(folder / f"{stage}.jsonl"),
        parent=os.getpid(),
        skip_isa_check=seed.skip_isa_check,
        mode=case.mode,
    )
    (folder / f"{stage}.jsonl").touch()
    return launcher.launch(
        job, environment=case_environment(run, folder), output=folder / f"{stage}.txt"
    )


def case_environment(run: Run, folder: Path) -> dict[str, str]:
    """Return the environment of a child: a clean one, with caches that belong to the case alone.

    The FX graph cache ignores the number of threads, and a cache that others filled would make a
    cold compile warm; both are reasons for a folder per case.
    """
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    threads = str(run.threads)
    return kept | {
        # Where this very code was imported from comes first: the child must be of one make with it.
        "PYTHONPATH": os.pathsep.join(
            filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")))
        ),
        "PYTHONUNBUFFERED": "1",
        "PYTHONHASHSEED": "0",
        "GLIBC_TUNABLES": ALLOCATOR,
        # For ivhl.compile of the commit under test: eager code must not be timed as compiled.
        "IVHL_MEASURING": "1",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        # A neighbour's remote cache would make cold compiles warm as well.
        "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": "0",
    }


def read_journal(path: Path) -> tuple[Phase, dict[str, Any]]:
    """Return the last phase that the child entered and everything it found.

    A last line that was cut off when the child was killed is left out.
    """
    phase: Phase = "import"
    findings: dict[str, Any] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError):
            data = json.loads(line)
            phase = data.get("phase", phase)
            findings |= data.get("findings", {})
    return phase, findings


def failure_of(
    phase: Phase, findings: dict[str, Any], ending: Ending, run: Run, output: Path
) -> Failure | None:
    """Return why the case failed, or ``None`` if it did not."""
    text = tail(output)
    if told := findings.get("failure"):
        return Failure(**told, output_tail=text)
    if findings.get("done") and ending.how == "exit" and ending.code == 0:
        return None
    failure_class: FailureClass = "crash"
    exception = ""
    if ending.how == "deadline":
        failure_class = "timeout"
        message = f"still in phase {phase} after {run.deadline_s:.0f} s"
    elif ending.how == "memory":
        failure_class = "out_of_memory"
        message = f"killed at {ending.peak_bytes / 2**30:.1f} GiB of resident memory"
    elif ending.how == "signal":
        exception = ending.signal_name
        message = f"ended by {exception} in phase {phase}"
        if exception == "SIGKILL":
            message += " (from outside: a person, or the kernel when memory ran out)"
    else:
        exception = "SystemExit"
        message = f"exited with status {ending.code} in phase {phase} without a result"
    return Failure(
        phase=phase,
        failure_class=failure_class,
        exception=exception,
        message=message,
        where="",
        output_tail=text,
    )


def make_record(
    run: Run,
    case: Case,
    findings: dict[str, Any],
    failure: Failure | None,
    *,
    duration_s: float,
    load: float | None,
    stability: tuple[Observation, ...] | None = None,
    in_cell: bool = True,
) -> RunRecord:
    """Return the record of a case from what was found and why it ended.

    ``in_cell`` says whether this process is the cell's own, so that its packages are the cell's.
    """
    arms = {
        name: Arm(calls=data["calls"], samples_s=tuple(data["samples_s"]))
        for name in ("eager", "eager_again", "formulation_eager", "compiled")
        if (data := findings.get(name))
    }
    eager, compiled = arms.get("eager"), arms.get("compiled")
    formulation = arms.get("formulation_eager")
    speedup = formulation_speedup = None
    if failure is None and eager and compiled:
        speedup = paired_ratio(eager.samples_s, compiled.samples_s)
        if formulation:
            formulation_speedup = paired_ratio(formulation.samples_s, compiled.samples_s)
    aa = paired_ratio(eager.samples_s, arms["eager_again"].samples_s) if eager else None
    return RunRecord(
        recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        duration_s=round(duration_s, 3),
        project=run.project,
        commit=run.commit,
        cell=run.cell,
        machine=run.machine,
        conditions=Conditions(
            device=findings.get("device", run.device),
            threads=run.threads,
            clock=findings.get("clock", choose_clock(run.device, run.threads)),
            quick=run.quick,
            load_average=load,
            instrument=str(INSTRUMENT),
            python_full=sys.version.split()[0] if in_cell else run.cell.python,
            torch_full=findings.get("torch_full"),
            packages=installed_packages() if in_cell else (),
            image=run.image,
            stability=stability,
            wheels=installed_wheels() if in_cell else None,
            gil=findings.get("gil"),
        ),
        sources=findings.get("sources"),
        workload=case.workload.name,
        workload_version=case.workload.version,
        size=case.size,
        variant=case.variant.name,
        mode=case.variant.mode,
        dtype=case.dtype,
        engine=case.variant.engine,
        failure=failure,
        speedup=speedup,
        aa=aa,
        formulation_speedup=formulation_speedup,
        eager=eager,
        eager_again=arms.get("eager_again"),
        formulation_eager=formulation,
        compiled=compiled,
        compile=compile_facts(findings.get("compile")),
        accuracy=tuple(OutputError(**e) for e in findings.get("accuracy", [])),
        memory=Memory(**findings["memory"]) if "memory" in findings else None,
        warnings=counted(findings.get("warnings", [])),
        command=repeat_command(run, case),
    )


def failed_everywhere(
    run: Run, case: Case, *, phase: Phase, failure_class: FailureClass, message: str, output: str
) -> RunRecord:
    """Return the record of a case that could not start, because its whole cell could not."""
    assert phase in get_args(Phase)  # noqa: S101  (a mistake of ours, not of a user)
    failure = Failure(
        phase=phase,
        failure_class=failure_class,
        exception="",
        message=message,
        where="",
        output_tail=output[-4000:],
    )
    return make_record(run, case, {}, failure, duration_s=0.0, load=None, in_cell=False)


def compile_facts(data: dict[str, Any] | None) -> CompileFacts | None:
    """Return what the journal says about compiling."""
    if data is None:
        return None
    reasons = {name: counted(data[name]) for name in ("graph_breaks", "recompiles")}
    return CompileFacts(**data | reasons)


def counted(items: list[dict[str, Any]]) -> tuple[Counted, ...]:
    """Return reasons or warnings of the journal."""
    return tuple(Counted(**item) for item in items)


def repeat_command(run: Run, case: Case) -> str:
    """Return the command that makes this record again."""
    words = [
        run.repeat,
        f"--workload {case.workload.name}",
        f"--size {case.size}",
        f"--variant {case.variant.name}",
    ]
    if case.mode is not None:
        words.append(f"--compile-mode {case.mode}")
    if run.threads != 1:
        words.append(f"--threads {run.threads}")
    if run.device != "cpu":
        words.append(f"--device {run.device}")
    if run.quick:
        words.append("--quick")
    if run.deadline_s != DEADLINE_S:
        words.append(f"--deadline {run.deadline_s:g}")
    if run.memory_limit is not None:
        words.append(f"--memory-limit {run.memory_limit / 2**30:g}")
    return " ".join([*words, "--force"])


def installed_packages() -> tuple[str, ...]:
    """Return every distribution of this interpreter as ``name==version``, sorted."""
    return tuple(
        sorted({f"{d.name.lower().replace('_', '-')}=={d.version}" for d in distributions()})
    )


def this_cell() -> Cell:
    """Return this very interpreter as a cell that no lock describes.

    Raises:
        SpecError: If torch is not installed.
    """
    try:
        torch = version("torch").split("+")[0]
    except PackageNotFoundError:
        raise SpecError(
            "torch is not installed here", hint=f"{sys.executable} -m pip install torch"
        ) from None
    free_threaded = "t" * bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    python = f"{sys.version_info.major}.{sys.version_info.minor}{free_threaded}"
    return Cell(id=f"py{python}-torch{torch}", python=python, torch=torch, lock_sha256=None)


def this_machine(name: str) -> Machine:
    """Return what is to be known about this machine.

    Raises:
        SpecError: If the name cannot be that of a folder.
    """
    cpu = ""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        cpu = next(x.split(":", 1)[1].strip() for x in lines if x.startswith("model name"))
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise SpecError(
            f"machine name {name!r}: may hold letters, digits, '_', '-' and '.', and begins with "
            "none of the last two",
            hint="it becomes the name of a folder; give another one with --machine",
        )
    return Machine(
        name=name,
        cpu=cpu or os.uname().machine,
        n_cpus=os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        system=f"{os.uname().sysname} {os.uname().machine}",
    )
