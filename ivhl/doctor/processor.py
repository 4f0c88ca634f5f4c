"""Check the processor: load, clock, available cores, CPU quota and hardware threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ivhl.measure.finding import CPUS, Finding, numbers_of, ranges_of
from ivhl.measure.stability import allowed_cpus, look_at_pace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ivhl.measure.finding import System


def look_at_processor(system: System) -> Iterator[Finding]:
    """Yield findings about load, clock, cores, quota and hardware threads."""
    cpus = allowed_cpus(system)
    yield from look_at_pace(system)
    yield _cores(system, cpus)
    yield _quota(system, len(cpus) or 1)
    yield _threads(system, cpus)


def _cores(system: System, cpus: tuple[int, ...]) -> Finding:
    online = numbers_of(system.text(f"{CPUS}/online"))
    isolated = numbers_of(system.text(f"{CPUS}/isolated"))
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
        return Finding("SMT", "warning", "not told: no topology in /sys", "see lscpu --extended")
    if not shared:
        return Finding("SMT", "ok", "each CPU allowed is a core of its own")
    pairs = [ranges_of(group) for group in shared.values()]
    told = " ".join(pairs[:4]) + (f" and {len(pairs) - 4} more" if len(pairs) > 4 else "")  # noqa: PLR2004
    hint = (
        f"echo off | sudo tee /{CPUS}/smt/control, or keep the siblings idle: "
        "two threads of a core slow each other"
    )
    return Finding("SMT", "warning", f"hardware threads share cores: {told}", hint)
