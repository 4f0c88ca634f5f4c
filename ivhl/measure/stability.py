"""Observe the machine's stability before a run, for ``ivhl doctor`` and for records."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from ivhl.measure.finding import CPUS, Finding, System, numbers_of
from ivhl.measure.gpu import SmiError, ask_cards, look_at_processes, look_at_steadiness
from ivhl.records import Observation

if TYPE_CHECKING:
    from collections.abc import Iterator

# Load average that counts as busy: half a CPU, or 5 % of a large machine.
_BUSY, _BUSY_SHARE = 0.5, 0.05
# Longest text that ``ivhl import`` accepts (ivhl.fleet.check).
_LONGEST = 100


def observe(device: str, system: System | None = None) -> tuple[Observation, ...]:
    """Return the observations about stability that a record keeps. Raises nothing.

    Args:
        device: ``cpu`` or ``cuda``; GPUs are queried only for ``cuda``.
        system: Where ``/proc`` and ``/sys`` are.
    """
    found: list[Observation] = []
    # An unreadable system must not stop a run; observations made before the error are kept.
    with suppress(Exception):
        found.extend(
            Observation(check=one.check, level=one.level, seen=one.seen[:_LONGEST])
            for one in _look(device, system or System())
        )
    return tuple(found)


def _look(device: str, system: System) -> Iterator[Finding]:
    yield from look_at_pace(system)
    if device != "cuda":
        return
    try:
        cards = ask_cards()
    except (SmiError, OSError):  # its message may contain paths, which records must not
        yield Finding("GPU", "warning", "not reported: nvidia-smi is missing or fails")
        return
    for card in cards:
        yield from look_at_steadiness(card)
    yield look_at_processes()


def look_at_pace(system: System) -> Iterator[Finding]:
    """Yield the load of the CPU and the settings that determine its clock."""
    yield _load(system, len(allowed_cpus(system)) or 1)
    yield _governor(system)
    yield _turbo(system)


def allowed_cpus(system: System) -> tuple[int, ...]:
    """Return the CPUs that this process may run on; empty if Linux does not report them."""
    allowed = numbers_of(system.table("proc/self/status").get("Cpus_allowed_list"))
    online = numbers_of(system.text(f"{CPUS}/online"))
    return tuple(cpu for cpu in allowed if cpu in online) if online else allowed


def _load(system: System, n_cpus: int) -> Finding:
    words = (system.text("proc/loadavg") or "").split()
    try:
        load = float(words[0])
    except (IndexError, ValueError):
        return Finding("load", "warning", "not reported: /proc/loadavg cannot be read")
    seen = f"{load:.2f} in the last minute, {n_cpus} CPU{'s' * (n_cpus > 1)} allowed"
    if load < max(_BUSY, _BUSY_SHARE * n_cpus):
        return Finding("load", "ok", seen)
    hint = "see top; end the other work or wait: it takes CPU time, caches and memory bandwidth"
    return Finding("load", "warning", seen, hint)


def _governor(system: System) -> Finding:
    folder = system.root / CPUS
    names = sorted(
        path.relative_to(system.root).as_posix()
        for path in folder.glob("cpu[0-9]*/cpufreq/scaling_governor")
    )
    governors = Counter(text for name in names if (text := system.text(name)))
    if not governors:
        return Finding(
            "governor",
            "warning",
            f"no cpufreq: {_whose(system)}",
            "compare only with runs of this machine",
        )
    seen = ", ".join(f"{name} on {count}" for name, count in governors.most_common())
    if set(governors) == {"performance"}:
        return Finding("governor", "ok", seen)
    hint = "sudo cpupower frequency-set --governor performance"
    return Finding("governor", "warning", seen, hint)


def _turbo(system: System) -> Finding:
    off = system.number(f"{CPUS}/intel_pstate/no_turbo")
    boost = system.number(f"{CPUS}/cpufreq/boost")
    if off is None and boost is None:
        return Finding(
            "turbo",
            "warning",
            f"not reported: {_whose(system)}",
            "compare only with runs of this machine",
        )
    if off == 1 or (off is None and boost == 0):
        return Finding("turbo", "ok", "off")
    if off is not None:
        command = f"echo 1 | sudo tee /{CPUS}/intel_pstate/no_turbo"
    else:
        command = f"echo 0 | sudo tee /{CPUS}/cpufreq/boost"
    hint = f"{command}: turbo makes the clock depend on temperature and other cores"
    return Finding("turbo", "warning", "on", hint)


def _whose(system: System) -> str:
    virtual = "hypervisor" in system.table("proc/cpuinfo").get("flags", "").split()
    return "a virtual machine, its host decides" if virtual else "the kernel does not tell"
