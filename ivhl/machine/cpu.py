"""Check the CPU: load, clock, available cores, quota and hardware threads."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ivhl.machine.observation import Observation
from ivhl.machine.system import CPUS, numbers_of, ranges_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ivhl.machine.system import System

# Load average that counts as busy: half a CPU, or 5 % of a large machine.
_BUSY, _BUSY_SHARE = 0.5, 0.05


def observe_cpu(system: System) -> Iterator[Observation]:
    """Yield observations about load, clock, cores, quota and hardware threads.

    Args:
        system: Gives access to ``/proc`` and ``/sys``.
    """
    cpus = allowed_cpus(system)
    yield from observe_cpu_speed(system)
    yield _cores(system, cpus)
    yield _quota(system, len(cpus) or 1)
    yield _threads(system, cpus)


def observe_cpu_speed(system: System) -> Iterator[Observation]:
    """Yield the load of the CPU and the settings that determine its clock.

    Args:
        system: Gives access to ``/proc`` and ``/sys``.
    """
    yield _load(system, len(allowed_cpus(system)) or 1)
    yield _governor(system)
    yield _turbo(system)


def allowed_cpus(system: System) -> tuple[int, ...]:
    """Return the CPUs that this process may run on; empty if Linux does not report them."""
    allowed = numbers_of(system.table("proc/self/status").get("Cpus_allowed_list"))
    online = numbers_of(system.text(f"{CPUS}/online"))
    return tuple(cpu for cpu in allowed if cpu in online) if online else allowed


def _load(system: System, n_cpus: int) -> Observation:
    words = (system.text("proc/loadavg") or "").split()
    try:
        load = float(words[0])
    except (IndexError, ValueError):
        return Observation("load", "warning", "not reported: /proc/loadavg cannot be read")
    seen = f"{load:.2f} in the last minute, {n_cpus} CPU{'s' * (n_cpus > 1)} allowed"
    if load < max(_BUSY, _BUSY_SHARE * n_cpus):
        return Observation("load", "ok", seen)
    hint = "see top; end the other work or wait: it takes CPU time, caches and memory bandwidth"
    return Observation("load", "warning", seen, hint)


def _governor(system: System) -> Observation:
    folder = system.root / CPUS
    names = sorted(
        path.relative_to(system.root).as_posix()
        for path in folder.glob("cpu[0-9]*/cpufreq/scaling_governor")
    )
    governors = Counter(text for name in names if (text := system.text(name)))
    if not governors:
        return Observation(
            "governor",
            "warning",
            f"no cpufreq: {_reason(system)}",
            "compare only with runs of this machine",
        )
    seen = ", ".join(f"{name} on {count}" for name, count in governors.most_common())
    if set(governors) == {"performance"}:
        return Observation("governor", "ok", seen)
    hint = "sudo cpupower frequency-set --governor performance"
    return Observation("governor", "warning", seen, hint)


def _turbo(system: System) -> Observation:
    off = system.number(f"{CPUS}/intel_pstate/no_turbo")
    boost = system.number(f"{CPUS}/cpufreq/boost")
    if off is None and boost is None:
        return Observation(
            "turbo",
            "warning",
            f"not reported: {_reason(system)}",
            "compare only with runs of this machine",
        )
    if off == 1 or (off is None and boost == 0):
        return Observation("turbo", "ok", "off")
    if off is not None:
        command = f"echo 1 | sudo tee /{CPUS}/intel_pstate/no_turbo"
    else:
        command = f"echo 0 | sudo tee /{CPUS}/cpufreq/boost"
    hint = f"{command}: turbo makes the clock depend on temperature and other cores"
    return Observation("turbo", "warning", "on", hint)


def _reason(system: System) -> str:
    virtual = "hypervisor" in system.table("proc/cpuinfo").get("flags", "").split()
    return "a virtual machine, its host decides" if virtual else "the kernel does not report it"


def _cores(system: System, cpus: tuple[int, ...]) -> Observation:
    online = numbers_of(system.text(f"{CPUS}/online"))
    isolated = numbers_of(system.text(f"{CPUS}/isolated"))
    if not cpus:
        return Observation("cores", "warning", "not reported: /proc/self/status cannot be read")
    seen = f"may run on {ranges_of(cpus)} of {ranges_of(online) or 'unknown'}"
    if isolated:
        seen += f", isolated from others: {ranges_of(isolated)}"
    if len(cpus) == 1:
        hint = "allow two (taskset --cpu-list, cpuset): asv and the measured case share this one"
        return Observation("cores", "warning", seen, hint)
    if not set(cpus) - set(isolated):
        hint = (
            "the scheduler does not spread processes over isolated CPUs, all would share one: "
            "allow others too, and start runs with taskset"
        )
        return Observation("cores", "warning", seen, hint)
    return Observation("cores", "ok", seen)


def _quota(system: System, n_cpus: int) -> Observation:
    quotas = []
    for name in system.cgroup_files("cpu", "cpu.max"):
        words = (system.text(name) or "").split()
        if len(words) == 2 and all(w.isdecimal() and int(w) for w in words):  # noqa: PLR2004  (quota, period)
            quotas.append(int(words[0]) / int(words[1]))
    for name in system.cgroup_files("cpu", "cpu.cfs_quota_us"):
        quota = system.number(name)
        period = system.number(name.replace("quota", "period"))
        if quota and period and quota > 0 and period > 0:
            quotas.append(quota / period)
    if not quotas or min(quotas) >= n_cpus:
        return Observation("CPU limit", "ok", "no quota below the number of allowed CPUs")
    least = min(quotas)
    seen = f"{least:.2g} CPUs of {n_cpus} allowed"
    hint = "pin whole CPUs instead (cpuset, docker --cpuset-cpus): a quota interrupts a process"
    return Observation("CPU limit", "wrong" if least < 1 else "warning", seen, hint)


def _threads(system: System, cpus: tuple[int, ...]) -> Observation:
    siblings = {
        cpu: numbers_of(system.text(f"{CPUS}/cpu{cpu}/topology/thread_siblings_list"))
        for cpu in cpus
    }
    # The kernel may list siblings that are offline, which cannot disturb.
    online = set(numbers_of(system.text(f"{CPUS}/online"))) or set(cpus)
    shared = {
        group: tuple(c for c in group if c in online)
        for group in siblings.values()
        if len(set(group) & online) > 1
    }
    if not any(siblings.values()):
        return Observation(
            "SMT", "warning", "not reported: no topology in /sys", "see lscpu --extended"
        )
    if not shared:
        return Observation("SMT", "ok", "each allowed CPU is the only thread of its core")
    pairs = [ranges_of(group) for group in shared.values()]
    listed = " ".join(pairs[:4]) + (f" and {len(pairs) - 4} more" if len(pairs) > 4 else "")  # noqa: PLR2004
    hint = (
        f"echo off | sudo tee /{CPUS}/smt/control, or keep the siblings idle: "
        "two threads of a core slow each other"
    )
    return Observation("SMT", "warning", f"hardware threads share cores: {listed}", hint)
