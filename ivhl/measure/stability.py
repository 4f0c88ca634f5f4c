"""How steady a machine is before anything is measured on it, for ``ivhl doctor`` and for records."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from ivhl.measure.card import SmiError, ask_cards, look_at_processes, look_at_steadiness
from ivhl.measure.finding import CPUS, Finding, System, numbers_of
from ivhl.records import Observation

if TYPE_CHECKING:
    from collections.abc import Iterator

# Half a processor, or a twentieth of a large machine.
_BUSY, _BUSY_SHARE = 0.5, 0.05
# What an import takes (ivhl.fleet.check).
_LONGEST = 100


def observe(device: str, system: System | None = None) -> tuple[Observation, ...]:
    """Return what a record keeps of the machine's stability; nothing here ends a measurement.

    Args:
        device: ``cpu`` or ``cuda``: cards are asked only where they are measured on.
        system: Where ``/proc`` and ``/sys`` are.
    """
    found: list[Observation] = []
    # Whatever a machine says of itself, its cases can be measured; what was seen until then stays.
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
    except (SmiError, OSError):  # in whose words there may be paths
        yield Finding("GPU", "warning", "not told: nvidia-smi is missing or fails")
        return
    for card in cards:
        yield from look_at_steadiness(card)
    yield look_at_processes()


def look_at_pace(system: System) -> Iterator[Finding]:
    """Yield how busy the processor is, and what decides how fast it runs."""
    yield _load(system, len(allowed_cpus(system)) or 1)
    yield _governor(system)
    yield _turbo(system)


def allowed_cpus(system: System) -> tuple[int, ...]:
    """Return the processors that this process may run on; none where Linux does not tell."""
    allowed = numbers_of(system.table("proc/self/status").get("Cpus_allowed_list"))
    online = numbers_of(system.text(f"{CPUS}/online"))
    return tuple(cpu for cpu in allowed if cpu in online) if online else allowed


def _load(system: System, n_cpus: int) -> Finding:
    words = (system.text("proc/loadavg") or "").split()
    try:
        load = float(words[0])
    except (IndexError, ValueError):
        return Finding("load", "warning", "not told: /proc/loadavg cannot be read")
    seen = f"{load:.2f} in the last minute, {n_cpus} CPU{'s' * (n_cpus > 1)} allowed"
    if load < max(_BUSY, _BUSY_SHARE * n_cpus):
        return Finding("load", "ok", seen)
    hint = "see what runs (top), end it or wait; it takes turns, caches and memory bandwidth"
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
            f"cannot be seen: {_whose(system)}",
            "compare only with runs of this machine",
        )
    if off == 1 or (off is None and boost == 0):
        return Finding("turbo", "ok", "off")
    if off is not None:
        command = f"echo 1 | sudo tee /{CPUS}/intel_pstate/no_turbo"
    else:
        command = f"echo 0 | sudo tee /{CPUS}/cpufreq/boost"
    hint = f"{command}: with it, the clock follows temperature and neighbours"
    return Finding("turbo", "warning", "on", hint)


def _whose(system: System) -> str:
    virtual = "hypervisor" in system.table("proc/cpuinfo").get("flags", "").split()
    return "a virtual machine, its host decides" if virtual else "the kernel does not tell"
