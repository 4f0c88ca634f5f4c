"""Read the state of NVIDIA GPUs from ``nvidia-smi``. Changes no setting."""

from __future__ import annotations

import csv
import shutil
from typing import TYPE_CHECKING, Final

from ivhl.machine.observation import Observation
from ivhl.machine.program import MissingProgramError, ProgramError, run_program
from ivhl.machine.system import System

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ivhl.machine.observation import Found
    from ivhl.records.record import Level

SMI = "nvidia-smi"
_FIELDS: Final = (
    "index",
    "name",
    "driver_version",
    "persistence_mode",
    "mig.mode.current",
    "compute_mode",
    "temperature.gpu",
    "clocks.sm",
    "clocks.max.sm",
    "utilization.gpu",
)
# Field name of drivers from 535 on, and of older ones.
_REASONS: Final = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
# Bits of nvmlClocksEventReasons in nvml.h. Left out: idle (1), and clocks set by the user for
# applications (2) and the display (256), which are no unexpected throttling.
_THROTTLED: Final[tuple[tuple[int, str, Level], ...]] = (
    (0x4, "power cap", "warning"),
    (0x8, "hardware slowdown", "wrong"),
    (0x10, "sync boost", "warning"),
    (0x20, "software thermal slowdown", "warning"),
    (0x40, "hardware thermal slowdown", "wrong"),
    (0x80, "power brake", "wrong"),
)
# An idle GPU this warm will throttle in the middle of a run.
_WARM_C = 70
_BUSY_PERCENT = 5


def has_nvidia_driver() -> bool:
    """Return whether this machine has a driver for NVIDIA GPUs."""
    return _is_loaded(System()) or shutil.which(SMI) is not None


def observe_gpus(system: System, *, wanted: bool) -> Iterator[Observation]:
    """Yield observations about the driver and each GPU.

    Args:
        system: Gives access to ``/proc``.
        wanted: Whether the run needs a GPU, so that a missing one is wrong.
    """
    driver = _is_loaded(system)
    try:
        gpus = query_gpus()
    except ProgramError as error:
        yield Observation("GPU", *_without_smi(error, driver=driver, wanted=wanted))
        return
    for gpu in gpus:
        yield from _settings(gpu)
        yield from observe_gpu_speed(gpu)
    yield observe_gpu_processes()


def _without_smi(error: ProgramError, *, driver: bool, wanted: bool) -> Found:
    if not isinstance(error, MissingProgramError):
        hint = "see dmesg; a driver that was updated without a reboot fails like this"
        return "wrong" if wanted or driver else "warning", f"nvidia-smi: {error}", hint
    if driver:
        hint = "put it on PATH; start a container with --gpus all"
        return "wrong", "the driver is loaded, nvidia-smi is missing", hint
    if wanted:
        return "wrong", "no NVIDIA driver", "install one (docs/runners.md), or measure on the CPU"
    return "ok", "no NVIDIA driver; cases run on the CPU", ""


def query_gpus() -> list[dict[str, str]]:
    """Return the fields of each GPU; a field that the GPU does not report is empty.

    Raises:
        MissingProgramError: If ``nvidia-smi`` is not installed.
        ProgramError: If it fails.
    """
    try:
        rows = _query_fields((*_FIELDS, _REASONS[0]))
    except ProgramError as error:
        if "not a valid field" not in str(error):
            raise
        rows = _query_fields((*_FIELDS, _REASONS[1]))
    return [dict(zip((*_FIELDS, "reasons"), row, strict=True)) for row in rows]


def free_bytes() -> int:
    """Return the free memory of the GPU that cases run on, of several the least; 0 if unknown."""
    try:
        rows = _query("--query-gpu=memory.free", 1)
    except (MissingProgramError, ProgramError):
        return 0
    return min((_number(free) or 0 for (free,) in rows), default=0) << 20


def observe_gpu_speed(gpu: Mapping[str, str]) -> Iterator[Observation]:
    """Yield what can change a GPU's speed: temperature, clocks, throttling, other load.

    Args:
        gpu: Fields of the GPU from ``query_gpus``.
    """
    name = f"GPU {gpu['index']}"
    yield Observation(f"{name} temperature", *_temperature(gpu))
    yield Observation(f"{name} clocks", *_clocks(gpu))
    yield Observation(f"{name} throttling", *_throttling(gpu))
    busy = _number(gpu["utilization.gpu"])
    if busy is not None and busy >= _BUSY_PERCENT:
        seen = f"{busy} % busy with other work"
        yield Observation(f"{name} load", "warning", seen, "wait, or measure on another GPU")


def observe_gpu_processes() -> Observation:
    """Return how many processes use the GPUs; only the hint names them, so no record does."""
    try:
        rows = _query("--query-compute-apps=pid,process_name,used_gpu_memory", 3)
    except ProgramError as error:
        return Observation("GPU processes", "warning", "not reported", f"nvidia-smi: {error}")
    if not rows:
        return Observation("GPU processes", "ok", "none visible")
    names = ", ".join(
        f"{name or 'unknown'} ({pid}, {memory or '?'} MiB)" for pid, name, memory in rows
    )
    hint = f"end them or wait, they share the GPU and its clocks: {names}"
    return Observation("GPU processes", "warning", f"{len(rows)} visible", hint)


def _is_loaded(system: System) -> bool:
    return (system.root / "proc/driver/nvidia").exists()


def _query_fields(fields: Sequence[str]) -> list[list[str]]:
    return _query(f"--query-gpu={','.join(fields)}", len(fields))


def _query(query: str, n_fields: int) -> list[list[str]]:
    done = run_program([SMI, query, "--format=csv,noheader,nounits"])
    if done.returncode:
        lines = (done.stdout + done.stderr).split("\n")
        output = " ".join(line.strip() for line in lines if line.strip())
        raise ProgramError(output or f"exit status {done.returncode}")
    rows = [
        ["" if cell.startswith("[") else cell.strip() for cell in row]
        for row in csv.reader(done.stdout.splitlines(), skipinitialspace=True)
        if row
    ]
    for row in rows:
        if len(row) != n_fields:
            raise ProgramError(f"returned {len(row)} fields, not {n_fields}: {', '.join(row)}")
    return rows


def _settings(gpu: Mapping[str, str]) -> Iterator[Observation]:
    name = f"GPU {gpu['index']}"
    driver = gpu["driver_version"] or "not reported"
    yield Observation(name, "ok", f"{gpu['name']}, driver {driver}")
    if gpu["compute_mode"] == "Prohibited":
        hint = f"sudo nvidia-smi -i {gpu['index']} -c DEFAULT"
        yield Observation(f"{name} compute mode", "wrong", "prohibited: nothing can run", hint)
    if gpu["persistence_mode"] == "Disabled":
        hint = "sudo nvidia-smi -pm 1, or nvidia-persistenced: else each process loads the driver"
        yield Observation(f"{name} persistence mode", "warning", "off", hint)
    else:
        seen = "on" if gpu["persistence_mode"] == "Enabled" else "not reported"
        yield Observation(f"{name} persistence mode", "ok", seen)
    if gpu["mig.mode.current"] == "Enabled":
        hint = "measure on a whole GPU, or give the slice its own --machine name"
        yield Observation(f"{name} MIG", "warning", "on: cases run on a slice of the GPU", hint)
    else:
        yield Observation(f"{name} MIG", "ok", "off")


def _temperature(gpu: Mapping[str, str]) -> Found:
    degrees = _number(gpu["temperature.gpu"])
    if degrees is None:
        return "warning", "not reported", ""
    if degrees >= _WARM_C:
        return "warning", f"{degrees} °C", "let it cool; check fans and airflow"
    return "ok", f"{degrees} °C", ""


def _clocks(gpu: Mapping[str, str]) -> Found:
    now, most = _number(gpu["clocks.sm"]), _number(gpu["clocks.max.sm"])
    if now is None or most is None:
        return "warning", "not reported", "in a virtual machine, look at its host"
    return "ok", f"{now} MHz now, {most} MHz at most", ""


def _throttling(gpu: Mapping[str, str]) -> Found:
    try:
        bits = int(gpu["reasons"], 16)
    except ValueError:
        return "warning", "not reported", ""
    found = {word: level for bit, word, level in _THROTTLED if bits & bit}
    if not found:
        return "ok", "none", ""
    hint = "see nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE; cool the GPU, end other work"
    return "wrong" if "wrong" in found.values() else "warning", ", ".join(found), hint


def _number(text: str) -> int | None:
    try:
        return round(float(text))
    except (ValueError, OverflowError):
        return None
