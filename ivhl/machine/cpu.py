"""Check the CPU: load, clock, available cores, quota and hardware threads."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ivhl.machine.observation import Observation
from ivhl.machine.system import CPUS, numbers_of, ranges_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ivhl.machine.observation import Found
    from ivhl.machine.system import System
    from ivhl.records.record import Level

# Load average that counts as busy: half a CPU, or 5 % of a large machine.
_BUSY, _BUSY_SHARE = 0.5, 0.05
_ONLY_HERE = "compare only with runs of this machine"


def observe_cpu(system: System) -> Iterator[Observation]:
    """Yield observations about load, clock, cores, quota and hardware threads.

    Args:
        system: Gives access to ``/proc`` and ``/sys``.
    """
    cpus = allowed_cpus(system)
    yield from observe_cpu_speed(system)
    yield Observation("cores", *_cores(system, cpus))
    yield Observation("CPU limit", *_quota(system, len(cpus) or 1))
    yield Observation("SMT", *_threads(system, cpus))


def observe_cpu_speed(system: System) -> Iterator[Observation]:
    """Yield the load of the CPU and the settings that determine its clock.

    Args:
        system: Gives access to ``/proc`` and ``/sys``.
    """
    yield Observation("load", *_load(system, len(allowed_cpus(system)) or 1))
    yield Observation("governor", *_governor(system))
    yield Observation("turbo", *_turbo(system))


def unsteady_clock(system: System) -> str:
    """Return what makes the clock change, with the next step; empty if Linux reports nothing.

    A virtual machine reports nothing: its host decides.

    Args:
        system: Gives access to ``/proc`` and ``/sys``.
    """
    found = (_governor(system), _turbo(system))
    changing = [one for one in found if one[0] != "ok" and one[2] != _ONLY_HERE]
    return "; ".join(f"{seen}, next: {hint}" for _, seen, hint in changing)


def allowed_cpus(system: System) -> tuple[int, ...]:
    """Return the CPUs that this process may run on; empty if Linux does not report them."""
    allowed = numbers_of(system.table("proc/self/status").get("Cpus_allowed_list"))
    online = numbers_of(system.text(f"{CPUS}/online"))
    return tuple(cpu for cpu in allowed if cpu in online) if online else allowed


def _load(system: System, n_cpus: int) -> Found:
    words = (system.text("proc/loadavg") or "").split()
    try:
        load = float(words[0])
    except (IndexError, ValueError):
        return "warning", "not reported: /proc/loadavg cannot be read", ""
    seen = f"{load:.2f} in the last minute, {n_cpus} CPU{'s' * (n_cpus > 1)} allowed"
    if load < max(_BUSY, _BUSY_SHARE * n_cpus):
        return "ok", seen, ""
    hint = "see top; end the other work or wait: it takes CPU time, caches and memory bandwidth"
    return "warning", seen, hint


def _governor(system: System) -> Found:
    files = sorted((system.root / CPUS).glob("cpu[0-9]*/cpufreq/scaling_governor"))
    texts = (system.text(path.relative_to(system.root).as_posix()) for path in files)
    governors = Counter(filter(None, texts))
    if not governors:
        return "warning", f"no cpufreq: {_reason(system)}", _ONLY_HERE
    seen = ", ".join(f"{name} on {count}" for name, count in governors.most_common())
    if set(governors) == {"performance"}:
        return "ok", seen, ""
    return "warning", seen, "sudo cpupower frequency-set --governor performance"


def _turbo(system: System) -> Found:
    off = system.number(f"{CPUS}/intel_pstate/no_turbo")
    boost = system.number(f"{CPUS}/cpufreq/boost")
    if off is None and boost is None:
        return "warning", f"not reported: {_reason(system)}", _ONLY_HERE
    if off == 1 or (off is None and boost == 0):
        return "ok", "off", ""
    setting = (
        "0 | sudo tee /{}/cpufreq/boost"
        if off is None
        else "1 | sudo tee /{}/intel_pstate/no_turbo"
    )
    why = "turbo makes the clock depend on temperature and other cores"
    return "warning", "on", f"echo {setting.format(CPUS)}: {why}"


def _reason(system: System) -> str:
    virtual = "hypervisor" in system.table("proc/cpuinfo").get("flags", "").split()
    return "a virtual machine, its host decides" if virtual else "the kernel does not report it"


def _cores(system: System, cpus: tuple[int, ...]) -> Found:
    online = numbers_of(system.text(f"{CPUS}/online"))
    isolated = numbers_of(system.text(f"{CPUS}/isolated"))
    if not cpus:
        return "warning", "not reported: /proc/self/status cannot be read", ""
    seen = f"may run on {ranges_of(cpus)} of {ranges_of(online) or 'unknown'}"
    if isolated:
        seen += f", isolated from others: {ranges_of(isolated)}"
    if len(cpus) == 1:
        hint = "allow two (taskset --cpu-list, cpuset): asv and the measured case share this one"
        return "warning", seen, hint
    if not set(cpus) - set(isolated):
        hint = (
            "the scheduler does not spread processes over isolated CPUs, all would share one: "
            "allow others too, and start runs with taskset"
        )
        return "warning", seen, hint
    return "ok", seen, ""


def _quota(system: System, n_cpus: int) -> Found:
    pairs = [
        [*map(int, words)]
        for name in system.cgroup_files("cpu", "cpu.max")
        if all(map(str.isdecimal, words := (system.text(name) or "").split()))
    ]
    pairs += [
        [system.number(name) or 0, system.number(name.replace("quota", "period")) or 0]
        for name in system.cgroup_files("cpu", "cpu.cfs_quota_us")
    ]
    # Quota and period; a quota of -1 is none.
    quotas = [pair[0] / pair[1] for pair in pairs if len(pair) == 2 and min(pair) > 0]  # noqa: PLR2004
    least = min(quotas, default=n_cpus)
    if least >= n_cpus:
        return "ok", "no quota below the number of allowed CPUs", ""
    hint = "pin whole CPUs instead (cpuset, docker --cpuset-cpus): a quota interrupts a process"
    level: Level = "wrong" if least < 1 else "warning"
    return level, f"{least:.2g} CPUs of {n_cpus} allowed", hint


def _threads(system: System, cpus: tuple[int, ...]) -> Found:
    place = f"{CPUS}/cpu{{}}/topology/thread_siblings_list"
    groups = dict.fromkeys(numbers_of(system.text(place.format(cpu))) for cpu in cpus)
    if not any(groups):
        return "warning", "not reported: no topology in /sys", "see lscpu --extended"
    # The kernel may list siblings that are offline, which cannot disturb.
    online = set(numbers_of(system.text(f"{CPUS}/online"))) or set(cpus)
    shared = [
        ranges_of(tuple(c for c in group if c in online))
        for group in groups
        if len(online.intersection(group)) > 1
    ]
    if not shared:
        return "ok", "each allowed CPU is the only thread of its core", ""
    listed = " ".join(shared[:4]) + (f" and {len(shared) - 4} more" if len(shared) > 4 else "")  # noqa: PLR2004
    hint = (
        f"echo off | sudo tee /{CPUS}/smt/control, or keep the siblings idle: "
        "two threads of a core slow each other"
    )
    return "warning", f"hardware threads share cores: {listed}", hint
