"""Machines made of files and programs: what ``/proc``, ``/sys`` and ``nvidia-smi`` may report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ivhl.machine.system import System

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from ivhl.machine.observation import Observation

CPU = "sys/devices/system/cpu"
# A machine of four cores without hardware threads, with everything as it should be.
WELL = {
    "proc/loadavg": "0.05 0.10 0.20 1/300 4711",
    "proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-3",
    "proc/self/cgroup": "0::/user.slice",
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: A CPU\nflags\t\t: fpu sse2",
    "proc/meminfo": (
        "MemTotal: 16777216 kB\nMemAvailable: 12582912 kB\nSwapTotal: 1048576 kB\n"
        "SwapFree: 1048576 kB"
    ),
    f"{CPU}/online": "0-3",
    f"{CPU}/isolated": "",
    f"{CPU}/intel_pstate/no_turbo": "1",
    **{f"{CPU}/cpu{n}/cpufreq/scaling_governor": "performance" for n in range(4)},
    **{f"{CPU}/cpu{n}/topology/thread_siblings_list": f"{n}" for n in range(4)},
    "sys/fs/cgroup/user.slice/cpu.max": "max 100000",
    "sys/fs/cgroup/user.slice/memory.max": "max",
}
# What nvidia-smi prints of a GPU, in the order of the fields that ivhl.machine.gpu asks for.
HEALTHY = (
    "0, NVIDIA H200, 570.86.15, Enabled, Disabled, Default, 31, 345, 1980, 0, 0x0000000000000001"
)
NEW_FIELD, OLD_FIELD = "clocks_event_reasons.active", "clocks_throttle_reasons.active"


def make_system(root: Path, changes: Mapping[str, str | None]) -> System:
    """Write the files of a machine; ``None`` stands for one that is not there."""
    for name, text in {**WELL, **changes}.items():
        if text is not None:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n", encoding="utf-8")
    return System(root)


def only(observed: Iterable[Observation], check: str) -> Observation:
    """Return the one observation of a check."""
    (found,) = [one for one in observed if one.check == check]
    return found


def fake_smi(folder: Path, gpus: str, processes: str = "", *, knows: str = NEW_FIELD) -> None:
    """Make an ``nvidia-smi`` that answers the two queries, and refuses fields as the real one."""
    script(
        folder / "nvidia-smi",
        f"""
case "$1" in
--query-gpu=*{knows}) cat <<'END'
{gpus}
END
;;
--query-gpu=*) echo 'Field "{NEW_FIELD}" is not a valid field to query.'; exit 2 ;;
--query-compute-apps=*) cat <<'END'
{processes}
END
;;
*) echo "unexpected: $*"; exit 3 ;;
esac""",
    )


def script(path: Path, text: str) -> None:
    """Write a shell script that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
