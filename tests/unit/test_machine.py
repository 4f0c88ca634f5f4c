"""Observations of machines that are made of files and programs, and what records keep of them."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ivhl.errors import SpecError
from ivhl.machine.compiler import observe_compiler
from ivhl.machine.cpu import observe_cpu, unsteady_clock
from ivhl.machine.disk import CELL_BYTES, SESSION_BYTES, observe_disk
from ivhl.machine.gpu import observe_gpus
from ivhl.machine.identity import BY_PROCESSOR, cpu_model, name_by, this_machine
from ivhl.machine.memory import memory_limit, observe_memory, oom_kills
from ivhl.machine.observation import LEVELS
from ivhl.machine.stability import observe_stability
from ivhl.machine.system import System, numbers_of, ranges_of
from ivhl.records.bounds import MACHINE_NAME
from ivhl.workload import Case, Cost, Variant
from tests.builders.machine import (
    CPU,
    HEALTHY,
    NEW_FIELD,
    OLD_FIELD,
    WELL,
    fake_smi,
    make_system,
    only,
    script,
)
from tests.builders.records import EMPTY_WORKLOAD

if TYPE_CHECKING:
    from ivhl.machine.observation import Observation

SIBLINGS = {
    f"{CPU}/cpu{n}/topology/thread_siblings_list": f"{n % 2},{n % 2 + 2}" for n in range(4)
}
GONE = None
VMSTAT = Path("/proc/vmstat")


def make_case(memory: int | None) -> Case:
    cost = None if memory is None else f"{__name__}:NEEDS_{memory}_GIB"
    workload = replace(EMPTY_WORKLOAD, cost=cost)
    return Case(workload=workload, size="small", variant=Variant(name="a", call="m:f"))


def test_a_machine_in_order_gets_no_hint(tmp_path: Path) -> None:
    system = make_system(tmp_path, {})
    observed = [*observe_cpu(system), *observe_memory(system, ())]
    assert {one.level for one in observed} == {"ok"}
    assert not [one for one in observed if one.hint]
    assert len(observed) == 8


@pytest.mark.parametrize(
    ("check", "level", "seen", "changes"),
    [
        ("load", "warning", "1.20 in the last minute", {"proc/loadavg": "1.20 1 1 1/1 1"}),
        ("load", "warning", "not reported", {"proc/loadavg": GONE}),
        ("load", "warning", "not reported", {"proc/loadavg": "much"}),
        (
            "governor",
            "warning",
            "performance on 3, powersave on 1",
            {f"{CPU}/cpu2/cpufreq/scaling_governor": "powersave"},
        ),
        (
            "governor",
            "warning",
            "no cpufreq: the kernel does not report it",
            {f"{CPU}/cpu{n}/cpufreq/scaling_governor": GONE for n in range(4)},
        ),
        (
            "governor",
            "warning",
            "a virtual machine, its host decides",
            {f"{CPU}/cpu{n}/cpufreq/scaling_governor": GONE for n in range(4)}
            | {"proc/cpuinfo": "flags\t\t: fpu hypervisor"},
        ),
        ("turbo", "warning", "on", {f"{CPU}/intel_pstate/no_turbo": "0"}),
        (
            "turbo",
            "warning",
            "on",
            {f"{CPU}/intel_pstate/no_turbo": GONE, f"{CPU}/cpufreq/boost": "1"},
        ),
        (
            "turbo",
            "ok",
            "off",
            {f"{CPU}/intel_pstate/no_turbo": GONE, f"{CPU}/cpufreq/boost": "0"},
        ),
        ("turbo", "warning", "not reported", {f"{CPU}/intel_pstate/no_turbo": GONE}),
        (
            "cores",
            "warning",
            "may run on 2 of 0-3",
            {"proc/self/status": "Cpus_allowed_list:\t2"},
        ),
        ("cores", "ok", "isolated from others: 2-3", {f"{CPU}/isolated": "2-3"}),
        (
            "cores",
            "warning",
            "isolated from others: 2-3",
            {f"{CPU}/isolated": "2-3", "proc/self/status": "Cpus_allowed_list:\t2-3"},
        ),
        ("cores", "warning", "not reported", {"proc/self/status": GONE}),
        (
            "CPU limit",
            "warning",
            "1.5 CPUs of 4",
            {"sys/fs/cgroup/user.slice/cpu.max": "150000 100000"},
        ),
        ("CPU limit", "wrong", "0.5 CPUs of 4", {"sys/fs/cgroup/cpu.max": "50000 100000"}),
        (
            "CPU limit",
            "warning",
            "2 CPUs of 4",
            {
                "proc/self/cgroup": "4:memory:/a\n3:cpu,cpuacct:/a",
                "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "200000",
                "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000",
            },
        ),
        (
            "CPU limit",
            "ok",
            "no quota",
            {
                "proc/self/cgroup": "3:cpu:/a",
                "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000",
            },
        ),
        ("SMT", "warning", "share cores: 0,2 1,3", SIBLINGS),
        ("SMT", "warning", "share cores: 0,2", SIBLINGS | {f"{CPU}/online": "0-2"}),
        ("SMT", "ok", "the only thread of its core", SIBLINGS | {f"{CPU}/online": "0-1"}),
        (
            "SMT",
            "warning",
            "not reported",
            {f"{CPU}/cpu{n}/topology/thread_siblings_list": GONE for n in range(4)},
        ),
        (
            "swap",
            "warning",
            "0.5 of 1.0 GiB used",
            {"proc/meminfo": "MemTotal: 9 kB\nSwapTotal: 1048576 kB\nSwapFree: 524288 kB"},
        ),
        ("swap", "ok", "none", {"proc/meminfo": "SwapTotal: 0 kB\nSwapFree: 0 kB"}),
        ("swap", "warning", "not reported", {"proc/meminfo": GONE}),
        ("memory", "warning", "not reported", {"proc/meminfo": "MemTotal: much"}),
    ],
)
def test_what_is_seen_decides(
    tmp_path: Path, check: str, level: str, seen: str, changes: dict[str, str | None]
) -> None:
    system = make_system(tmp_path, changes)
    found = only([*observe_cpu(system), *observe_memory(system, ())], check)
    assert (found.level, seen in found.seen) == (level, True), found


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        ({}, ""),
        ({f"{CPU}/intel_pstate/no_turbo": GONE}, ""),  # as in a virtual machine
        ({f"{CPU}/intel_pstate/no_turbo": "0"}, "on, next: echo 1 | sudo tee"),
        ({f"{CPU}/cpu2/cpufreq/scaling_governor": "powersave"}, "powersave on 1, next: sudo"),
    ],
)
def test_a_clock_is_steady_unless_linux_reports_what_changes_it(
    tmp_path: Path, changes: dict[str, str | None], seen: str
) -> None:
    found = unsteady_clock(make_system(tmp_path, changes))
    assert seen in found
    assert bool(seen) == bool(found)


def test_a_large_machine_may_be_a_little_busy(tmp_path: Path) -> None:
    allowed = {"proc/self/status": "Cpus_allowed_list:\t0-99", f"{CPU}/online": "0-99"}
    busy = {"proc/loadavg": "4.90 1 1 1/1 1"}
    assert only(observe_cpu(make_system(tmp_path, allowed | busy)), "load").level == "ok"
    assert only(observe_cpu(make_system(tmp_path, busy)), "load").level == "warning"


# Of cases; the test puts functions here.
NEEDS_2_GIB = NEEDS_11_GIB = NEEDS_13_GIB = None


@pytest.mark.parametrize(
    ("need", "limit", "level"),
    [(2, "max", "ok"), (11, "max", "warning"), (13, "max", "wrong"), (2, f"{4 * 2**30}", "wrong")],
)
def test_the_largest_case_must_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, need: int, limit: str, level: str
) -> None:
    cost = Cost(flops=1, bytes=1, memory=need * 2**30)
    monkeypatch.setattr(f"{__name__}.NEEDS_{need}_GIB", lambda _: cost)
    system = make_system(tmp_path, {"sys/fs/cgroup/user.slice/memory.max": limit})
    found = only(observe_memory(system, [make_case(None), make_case(need)]), "memory")
    assert found.level == level
    assert f"ops.empty/small/a needs {need + 2}.0" in found.seen


def test_the_limits_of_all_groups_above_count(tmp_path: Path) -> None:
    groups = {
        "proc/self/cgroup": "0::/a/b",
        "sys/fs/cgroup/a/memory.max": f"{2**30}",
        "sys/fs/cgroup/a/b/memory.max": f"{2**31}",
    }
    assert (
        "limited to 1.0 GiB"
        in only(observe_memory(make_system(tmp_path, groups), ()), "memory").seen
    )


def test_a_case_may_use_nine_tenths_of_the_lowest_limit(tmp_path: Path) -> None:
    """The runner and ``ivhl doctor`` agree, in whatever control group they run."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert memory_limit(make_system(tmp_path, {})) == int(0.9 * machine)
    own = {"sys/fs/cgroup/user.slice/memory.max": f"{2**20}"}
    assert memory_limit(make_system(tmp_path, own)) == int(0.9 * 2**20)
    above = {
        "proc/self/cgroup": "9:memory:/a/b",
        "sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{2**21}",
        "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": f"{2**63 - 4096}",
    }
    assert memory_limit(make_system(tmp_path, above)) == int(0.9 * 2**21)


@pytest.mark.skipif(not VMSTAT.is_file(), reason="only Linux counts them")
def test_kills_for_lack_of_memory_are_counted() -> None:
    assert f"\noom_kill {oom_kills()}\n" in VMSTAT.read_text(encoding="ascii")


@given(st.fixed_dictionaries({name: st.none() | st.text() for name in WELL}))
def test_no_file_of_the_kernel_ends_the_observation(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, str | None]
) -> None:
    root = tmp_path_factory.mktemp("system")
    written = {k: v and v.encode("utf-8", "replace").decode() for k, v in changes.items()}
    system = make_system(root, written)
    observed = [*observe_cpu(system), *observe_memory(system, ())]
    shutil.rmtree(root)
    assert len(observed) == 8
    assert all(one.level in LEVELS and one.seen for one in observed)


@given(st.sets(st.integers(0, 5000)))
def test_a_list_of_processors_is_read_as_it_is_written(numbers: set[int]) -> None:
    assert numbers_of(ranges_of(tuple(sorted(numbers)))) == tuple(sorted(numbers))


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "1,,2", "1-x", None, "²"])
def test_a_damaged_list_is_no_list(text: str | None) -> None:
    assert numbers_of(text) == ()


def test_a_range_without_end_is_cut() -> None:
    assert len(numbers_of("0-99999999999")) < 10**6


# The name and the CPU.


@pytest.mark.parametrize("name", ["", "..", "a/b", "-x", ".hidden", "x y", "<script>"])
def test_a_machine_is_named_like_a_folder(name: str) -> None:
    with pytest.raises(SpecError, match="machine name"):
        this_machine(name)
    assert this_machine("epyc-2core.lab_1").name == "epyc-2core.lab_1"


@pytest.mark.parametrize(
    ("cpuinfo", "model"),
    [
        ("processor\t: 0\nmodel\t\t: 17\nmodel name\t: A: B\nmodel name\t: C", "A: B"),
        ("model name\t:", ""),
        ("processor\t: 0", ""),
        ("", ""),
    ],
)
def test_the_first_cpu_names_the_model(cpuinfo: str, model: str) -> None:
    assert cpu_model(cpuinfo) == model


# GPUs.


@pytest.mark.parametrize("knows", [NEW_FIELD, OLD_FIELD])
def test_a_healthy_gpu_is_all_ok(tmp_path: Path, programs: Path, knows: str) -> None:
    fake_smi(programs, HEALTHY, knows=knows)
    observed = tuple(observe_gpus(System(tmp_path), wanted=True))
    assert {one.level for one in observed} == {"ok"}
    told = {one.check: one.seen for one in observed}
    assert told == {
        "GPU 0": "NVIDIA H200, driver 570.86.15",
        "GPU 0 temperature": "31 °C",
        "GPU 0 clocks": "345 MHz now, 1980 MHz at most",
        "GPU 0 throttling": "none",
        "GPU 0 persistence mode": "on",
        "GPU 0 MIG": "off",
        "GPU processes": "none visible",
    }


@pytest.mark.parametrize(
    ("check", "level", "change"),
    [
        ("temperature", "warning", (" 31,", " 70,")),
        ("temperature", "warning", (" 31,", " [N/A],")),
        ("clocks", "warning", (" 1980,", " [Not Supported],")),
        ("throttling", "ok", ("0x0000000000000001", "0x0000000000000003")),
        ("throttling", "warning", ("0x0000000000000001", "0x0000000000000004")),
        ("throttling", "warning", ("0x0000000000000001", "0x0000000000000020")),
        ("throttling", "wrong", ("0x0000000000000001", "0x0000000000000009")),
        ("throttling", "wrong", ("0x0000000000000001", "0x0000000000000044")),
        ("throttling", "wrong", ("0x0000000000000001", "0x0000000000000080")),
        ("throttling", "warning", ("0x0000000000000001", "[N/A]")),
        ("persistence mode", "warning", ("Enabled,", "Disabled,")),
        ("MIG", "ok", ("Disabled,", "[N/A],")),
        ("MIG", "warning", (" Disabled,", " Enabled,")),
        ("compute mode", "wrong", ("Default", "Prohibited")),
        ("load", "warning", (" 0, 0x", " 37, 0x")),
    ],
)
def test_what_a_gpu_reports_decides(
    tmp_path: Path, programs: Path, check: str, level: str, change: tuple[str, str]
) -> None:
    assert change[0] in HEALTHY
    fake_smi(programs, HEALTHY.replace(*change, 1))
    observed = observe_gpus(System(tmp_path), wanted=True)
    assert only(observed, f"GPU 0 {check}").level == level


def test_every_gpu_and_every_process_is_named(tmp_path: Path, programs: Path) -> None:
    gpus = f"{HEALTHY}\n{HEALTHY.replace('0', '1', 1)}"
    fake_smi(programs, gpus, "4711, /usr/bin/python, 812\n12, [Not Found], [N/A]")
    observed = tuple(observe_gpus(System(tmp_path), wanted=True))
    assert {"GPU 0", "GPU 1"} <= {one.check for one in observed}
    found = only(observed, "GPU processes")
    assert (found.level, found.seen) == ("warning", "2 visible")
    assert found.hint.endswith(": /usr/bin/python (4711, 812 MiB), unknown (12, ? MiB)")


@pytest.mark.parametrize(("wanted", "level"), [(True, "wrong"), (False, "ok")])
@pytest.mark.usefixtures("empty_path")
def test_no_driver_is_wrong_only_for_those_who_want_a_gpu(
    tmp_path: Path,
    wanted: bool,  # noqa: FBT001  (pytest passes by name)
    level: str,
) -> None:
    found = only(observe_gpus(System(tmp_path), wanted=wanted), "GPU")
    assert (found.level, "no NVIDIA driver" in found.seen) == (level, True)


@pytest.mark.usefixtures("empty_path")
def test_a_driver_without_its_program_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    assert only(observe_gpus(System(tmp_path), wanted=False), "GPU").level == "wrong"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("echo Failed to initialize NVML: Driver/library version mismatch; exit 18", "mismatch"),
        ("exit 9", "exit status 9"),
        ("echo 0, NVIDIA", "returned 2 fields, not 11"),
    ],
)
def test_a_driver_that_fails_is_quoted(
    tmp_path: Path, programs: Path, text: str, seen: str
) -> None:
    script(programs / "nvidia-smi", text)
    for wanted, level in ((True, "wrong"), (False, "warning")):
        found = only(observe_gpus(System(tmp_path), wanted=wanted), "GPU")
        assert (found.level, seen in found.seen) == (level, True), found


def test_a_gpu_that_hangs_is_given_up(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ivhl.machine.program._PATIENCE_S", 0.2)
    script(programs / "nvidia-smi", "exec sleep 60")
    found = only(observe_gpus(System(tmp_path), wanted=True), "GPU")
    assert (found.level, "does not finish" in found.seen) == ("wrong", True)


# What records keep of it.


def test_a_record_keeps_what_changes_the_pace_of_the_processor(tmp_path: Path) -> None:
    system = make_system(tmp_path, {f"{CPU}/intel_pstate/no_turbo": "0"})
    assert [(one.check, one.level, one.seen) for one in observe_stability("cpu", system)] == [
        ("load", "ok", "0.05 in the last minute, 4 CPUs allowed"),
        ("governor", "ok", "performance on 4"),
        ("turbo", "warning", "on"),
    ]


def test_a_record_keeps_how_steady_gpus_are_and_no_path(tmp_path: Path, programs: Path) -> None:
    busy = HEALTHY.replace(" 31,", " 71,").replace(" 0, 0x", " 37, 0x")
    fake_smi(programs, busy, "4711, /home/me/bin/python, 812")
    system = make_system(tmp_path, {})
    assert len(observe_stability("cpu", system)) == 3
    assert [(one.check, one.level, one.seen) for one in observe_stability("cuda", system)[3:]] == [
        ("GPU 0 temperature", "warning", "71 °C"),
        ("GPU 0 clocks", "ok", "345 MHz now, 1980 MHz at most"),
        ("GPU 0 throttling", "ok", "none"),
        ("GPU 0 load", "warning", "37 % busy with other work"),
        ("GPU processes", "warning", "1 visible"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "echo No such file: /home/me/nvml.so; exit 9",
        f'case "$1" in --query-gpu=*) echo "{HEALTHY}" ;; *) echo /home/me; exit 9 ;; esac',
    ],
)
def test_a_record_does_not_repeat_the_words_of_a_driver_that_fails(
    tmp_path: Path, programs: Path, text: str
) -> None:
    script(programs / "nvidia-smi", text)
    seen = observe_stability("cuda", make_system(tmp_path, {}))
    assert "not reported" in seen[-1].seen
    assert not [one for one in seen if "/" in one.seen]


@pytest.mark.usefixtures("empty_path")
def test_a_machine_without_nvidia_smi_is_measured(tmp_path: Path) -> None:
    *_, last = observe_stability("cuda", make_system(tmp_path, {}))
    assert (last.check, last.level) == ("GPU", "warning")


def test_a_look_that_fails_keeps_what_was_seen_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(_: System) -> Observation:
        raise RuntimeError

    monkeypatch.setattr("ivhl.machine.cpu._turbo", break_down)
    found = observe_stability("cpu", make_system(tmp_path, {}))
    assert [one.check for one in found] == ["load", "governor"]


def test_a_long_text_of_the_kernel_is_cut_for_records(tmp_path: Path) -> None:
    names = {f"{CPU}/cpu{n}/cpufreq/scaling_governor": f"{n}" * 60 for n in range(4)}
    assert len(observe_stability("cpu", make_system(tmp_path, names))[1].seen) == 100


# Disk and compiler.


@pytest.mark.parametrize(
    ("free", "made", "level"),
    [
        (SESSION_BYTES, False, "ok"),
        (SESSION_BYTES - 1, False, "warning"),
        (CELL_BYTES - 1, False, "wrong"),
        (CELL_BYTES - 1, True, "warning"),
    ],
)
def test_room_is_asked_for_cells_that_are_to_be_made(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    free: int,
    made: bool,  # noqa: FBT001  (pytest passes by name)
    level: str,
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    if made:
        (tmp_path / ".asv" / "env" / "1234").mkdir(parents=True)
    assert observe_disk(tmp_path / ".asv" / "env").level == level


def test_a_compiler_without_openmp_is_wrong(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    script(programs / "g++", "echo 'fatal error: omp.h: No such file' >&2; exit 1")
    found = observe_compiler()
    assert (found.level, "omp.h" in found.seen) == ("wrong", True)


def test_a_runner_of_another_processor_is_another_machine() -> None:
    assert name_by("AMD EPYC 7763 64-Core Processor", 4) == "amd-epyc-7763-64-core-processor-x4"
    intel = name_by("Intel(R) Xeon(R) Platinum 8370C CPU @ 2.80GHz", 4)
    assert intel == "intel-xeon-platinum-8370c-cpu-x4"
    assert name_by("", 2) == "processor-x2"
    for cpu in ("AMD EPYC 7763", "", "\N{GREEK SMALL LETTER MU} @", "x" * 400):
        assert MACHINE_NAME.mistake(name_by(cpu, 64)) == ""
    assert this_machine(BY_PROCESSOR).name == this_machine(BY_PROCESSOR).name != BY_PROCESSOR
