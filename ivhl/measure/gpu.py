"""Read the state of NVIDIA GPUs from ``nvidia-smi``. Changes no setting."""

from __future__ import annotations

import csv
import subprocess
from typing import TYPE_CHECKING, Final

from ivhl.measure.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ivhl.records import Level

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
_PATIENCE_S = 60


class SmiError(Exception):
    """``nvidia-smi`` failed; the message is its output."""


def ask_cards() -> list[dict[str, str]]:
    """Return the fields of each GPU; a field that the GPU does not report is empty.

    Raises:
        FileNotFoundError: If ``nvidia-smi`` is not installed.
        SmiError: If it fails.
    """
    try:
        rows = _ask_for((*_FIELDS, _REASONS[0]))
    except SmiError as error:
        if "not a valid field" not in str(error):
            raise
        rows = _ask_for((*_FIELDS, _REASONS[1]))
    return [dict(zip((*_FIELDS, "reasons"), row, strict=True)) for row in rows]


def _ask_for(fields: Sequence[str]) -> list[list[str]]:
    return _ask(f"--query-gpu={','.join(fields)}", len(fields))


def _ask(query: str, n_fields: int) -> list[list[str]]:
    try:
        done = subprocess.run(
            [SMI, query, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except FileNotFoundError:
        raise
    except subprocess.TimeoutExpired:
        raise SmiError(f"does not finish within {_PATIENCE_S} s") from None
    except OSError as error:
        raise SmiError(f"cannot be run: {error.strerror}") from None
    if done.returncode:
        lines = (done.stdout + done.stderr).split("\n")
        output = " ".join(line.strip() for line in lines if line.strip())
        raise SmiError(output or f"exit status {done.returncode}")
    rows = [
        ["" if cell.startswith("[") else cell.strip() for cell in row]
        for row in csv.reader(done.stdout.splitlines(), skipinitialspace=True)
        if row
    ]
    for row in rows:
        if len(row) != n_fields:
            raise SmiError(f"returned {len(row)} fields, not {n_fields}: {', '.join(row)}")
    return rows


def look_at_steadiness(gpu: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what can change a GPU's speed: temperature, clocks, throttling, other load.

    Args:
        gpu: Fields of the GPU from ``ask_cards``.
    """
    name = f"GPU {gpu['index']}"
    yield _temperature(name, gpu)
    yield _clocks(name, gpu)
    yield _throttling(name, gpu)
    busy = _number(gpu["utilization.gpu"])
    if busy is not None and busy >= _BUSY_PERCENT:
        seen = f"{busy} % busy with other work"
        yield Finding(f"{name} load", "warning", seen, "wait, or measure on another GPU")


def look_at_processes() -> Finding:
    """Return how many processes use the GPUs; only the hint names them, so no record does."""
    try:
        rows = _ask("--query-compute-apps=pid,process_name,used_gpu_memory", 3)
    except (SmiError, OSError) as error:
        return Finding("GPU processes", "warning", "not reported", f"nvidia-smi: {error}")
    if not rows:
        return Finding("GPU processes", "ok", "none visible")
    names = ", ".join(
        f"{name or 'unknown'} ({pid}, {memory or '?'} MiB)" for pid, name, memory in rows
    )
    hint = f"end them or wait, they share the GPU and its clocks: {names}"
    return Finding("GPU processes", "warning", f"{len(rows)} visible", hint)


def _temperature(name: str, gpu: Mapping[str, str]) -> Finding:
    degrees = _number(gpu["temperature.gpu"])
    check = f"{name} temperature"
    if degrees is None:
        return Finding(check, "warning", "not reported")
    if degrees >= _WARM_C:
        return Finding(check, "warning", f"{degrees} °C", "let it cool; check fans and airflow")
    return Finding(check, "ok", f"{degrees} °C")


def _clocks(name: str, gpu: Mapping[str, str]) -> Finding:
    now, most = _number(gpu["clocks.sm"]), _number(gpu["clocks.max.sm"])
    check = f"{name} clocks"
    if now is None or most is None:
        return Finding(check, "warning", "not reported", "in a virtual machine, look on its host")
    return Finding(check, "ok", f"{now} MHz now, {most} MHz at most")


def _throttling(name: str, gpu: Mapping[str, str]) -> Finding:
    check = f"{name} throttling"
    try:
        bits = int(gpu["reasons"], 16)
    except ValueError:
        return Finding(check, "warning", "not reported")
    found = [(word, level) for bit, word, level in _THROTTLED if bits & bit]
    if not found:
        return Finding(check, "ok", "none")
    levels: Sequence[Level] = [level for _, level in found]
    hint = "see nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE; cool the GPU, end other work"
    seen = ", ".join(word for word, _ in found)
    return Finding(check, "wrong" if "wrong" in levels else "warning", seen, hint)


def _number(text: str) -> int | None:
    try:
        return round(float(text))
    except (ValueError, OverflowError):
        return None
