"""The processor: how busy it is, how fast it may run, and how much of it is ours."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ivhl.doctor.finding import Finding, numbers_of, ranges_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ivhl.doctor.finding import System

_CPUS = "sys/devices/system/cpu"
# Half a processor, or a twentieth of a large machine.
_BUSY, _BUSY_SHARE = 0.5, 0.05


def look_at_processor(system: System) -> Iterator[Finding]:
    """Yield what is to be said of load, clock, cores, limits and hardware threads."""
    cpus = allowed_cpus(system)
    yield _load(system, len(cpus) or 1)
    yield _governor(system)
    yield _turbo(system)
    yield _cores(system, cpus)
    yield _quota(system, len(cpus) or 1)
    yield _threads(system, cpus)


def allowed_cpus(system: System) -> tuple[int, ...]:
    """Return the processors that this process may run on; none where Linux does not tell."""
    allowed = numbers_of(system.table("proc/self/status").get("Cpus_allowed_list"))
    online = numbers_of(system.text(f"{_CPUS}/online"))
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
    folder = system.root / _CPUS
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
    off = system.number(f"{_CPUS}/intel_pstate/no_turbo")
    boost = system.number(f"{_CPUS}/cpufreq/boost")
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
        command = f"echo 1 | sudo tee /{_CPUS}/intel_pstate/no_turbo"
    else:
        command = f"echo 0 | sudo tee /{_CPUS}/cpufreq/boost"
    hint = f"{command}: with it, the clock follows temperature and neighbours"
    return Finding("turbo", "warning", "on", hint)


def _whose(system: System) -> str:
    virtual = "hypervisor" in system.table("proc/cpuinfo").get("flags", "").split()
    return "a virtual machine, its host decides" if virtual else "the kernel does not tell"


def _cores(system: System, cpus: tuple[int, ...]) -> Finding:
    online = numbers_of(system.text(f"{_CPUS}/online"))
    isolated = numbers_of(system.text(f"{_CPUS}/isolated"))
    if not cpus:
        return Finding("cores", "warning", "not told: /proc/self/status cannot be read")
    seen = f"may run on {ranges_of(cpus)} of {ranges_of(online) or 'unknown'}"
    if isolated:
        seen += f", isolated from others: {ranges_of(isolated)}"
    if len(cpus) == 1:
        hint = "allow two: asv and the measured case share this one (taskset --cpu-list, cpuset)"
        return Finding("cores", "warning", seen, hint)
    if not set(cpus) - set(isolated):
        hint = (
            "the scheduler does not spread processes over isolated CPUs, all would share one: "
            "allow others too, and begin runs with taskset"
        )
        return Finding("cores", "warning", seen, hint)
    return Finding("cores", "ok", seen)


def _quota(system: System, n_cpus: int) -> Finding:
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
        return Finding("CPU limit", "ok", "none below the CPUs allowed")
    least = min(quotas)
    seen = f"{least:.2g} CPUs of {n_cpus} allowed"
    hint = "pin whole CPUs instead (cpuset, docker --cpuset-cpus): a quota stops a process midway"
    return Finding("CPU limit", "wrong" if least < 1 else "warning", seen, hint)


def _threads(system: System, cpus: tuple[int, ...]) -> Finding:
    siblings = {
        cpu: numbers_of(system.text(f"{_CPUS}/cpu{cpu}/topology/thread_siblings_list"))
        for cpu in cpus
    }
    # One that is switched off cannot disturb; the kernel may list it all the same.
    online = set(numbers_of(system.text(f"{_CPUS}/online"))) or set(cpus)
    shared = {
        group: tuple(c for c in group if c in online)
        for group in siblings.values()
        if len(set(group) & online) > 1
    }
    if not any(siblings.values()):
        return Finding("SMT", "warning", "not told: no topology in /sys", "see lscpu --extended")
    if not shared:
        return Finding("SMT", "ok", "each CPU allowed is a core of its own")
    pairs = [ranges_of(group) for group in shared.values()]
    told = " ".join(pairs[:4]) + (f" and {len(pairs) - 4} more" if len(pairs) > 4 else "")  # noqa: PLR2004
    hint = (
        f"echo off | sudo tee /{_CPUS}/smt/control, or keep the siblings idle: "
        "two threads of a core slow each other"
    )
    return Finding("SMT", "warning", f"hardware threads share cores: {told}", hint)
