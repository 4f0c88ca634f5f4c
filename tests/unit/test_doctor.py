"""Findings of the doctor on machines with made-up files."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ivhl.asv.machine import asv_machine
from ivhl.cli import app
from ivhl.doctor import LEVELS, Finding, System
from ivhl.doctor.card import look_at_cards
from ivhl.doctor.memory import look_at_memory
from ivhl.doctor.processor import look_at_processor
from ivhl.doctor.storage import CELL_BYTES, SESSION_BYTES, look_at_storage
from ivhl.doctor.tools import look_at_names, look_at_tools
from ivhl.matrix.project import find_root
from ivhl.measure.finding import numbers_of, ranges_of
from ivhl.measure.runner import this_machine
from ivhl.measure.stability import observe
from ivhl.workload import Case, Cost, Variant
from tests.browser.synthetic import EMPTY_WORKLOAD

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
SIBLINGS = {
    f"{CPU}/cpu{n}/topology/thread_siblings_list": f"{n % 2},{n % 2 + 2}" for n in range(4)
}
GONE = None


def make_system(root: Path, changes: Mapping[str, str | None]) -> System:
    """Write the files of a machine; ``None`` stands for one that is not there."""
    for name, text in {**WELL, **changes}.items():
        if text is not None:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n", encoding="utf-8")
    return System(root)


def only(findings: Iterable[Finding], check: str) -> Finding:
    (found,) = [one for one in findings if one.check == check]
    return found


def make_case(memory: int | None) -> Case:
    cost = None if memory is None else f"{__name__}:NEEDS_{memory}_GIB"
    workload = replace(EMPTY_WORKLOAD, cost=cost)
    return Case(workload=workload, size="small", variant=Variant(name="a", call="m:f"))


def test_a_machine_in_order_gets_no_hint(tmp_path: Path) -> None:
    system = make_system(tmp_path, {})
    findings = [*look_at_processor(system), *look_at_memory(system, ())]
    assert {one.level for one in findings} == {"ok"}
    assert not [one for one in findings if one.hint]
    assert len(findings) == 8


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
            "no cpufreq: the kernel does not tell",
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
        ("cores", "warning", "not told", {"proc/self/status": GONE}),
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
            "none",
            {
                "proc/self/cgroup": "3:cpu:/a",
                "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000",
            },
        ),
        ("SMT", "warning", "share cores: 0,2 1,3", SIBLINGS),
        ("SMT", "warning", "share cores: 0,2", SIBLINGS | {f"{CPU}/online": "0-2"}),
        ("SMT", "ok", "a core of its own", SIBLINGS | {f"{CPU}/online": "0-1"}),
        (
            "SMT",
            "warning",
            "not told",
            {f"{CPU}/cpu{n}/topology/thread_siblings_list": GONE for n in range(4)},
        ),
        (
            "swap",
            "warning",
            "0.5 of 1.0 GiB used",
            {"proc/meminfo": "MemTotal: 9 kB\nSwapTotal: 1048576 kB\nSwapFree: 524288 kB"},
        ),
        ("swap", "ok", "none", {"proc/meminfo": "SwapTotal: 0 kB\nSwapFree: 0 kB"}),
        ("swap", "warning", "not told", {"proc/meminfo": GONE}),
        ("memory", "warning", "not told", {"proc/meminfo": "MemTotal: much"}),
    ],
)
def test_what_is_seen_decides(
    tmp_path: Path, check: str, level: str, seen: str, changes: dict[str, str | None]
) -> None:
    system = make_system(tmp_path, changes)
    found = only([*look_at_processor(system), *look_at_memory(system, ())], check)
    assert (found.level, seen in found.seen) == (level, True), found


def test_a_large_machine_may_be_a_little_busy(tmp_path: Path) -> None:
    allowed = {"proc/self/status": "Cpus_allowed_list:\t0-99", f"{CPU}/online": "0-99"}
    busy = {"proc/loadavg": "4.90 1 1 1/1 1"}
    assert only(look_at_processor(make_system(tmp_path, allowed | busy)), "load").level == "ok"
    assert only(look_at_processor(make_system(tmp_path, busy)), "load").level == "warning"


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
    found = only(look_at_memory(system, [make_case(None), make_case(need)]), "memory")
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
        in only(look_at_memory(make_system(tmp_path, groups), ()), "memory").seen
    )


@given(st.fixed_dictionaries({name: st.none() | st.text() for name in WELL}))
def test_no_file_of_the_kernel_ends_the_examination(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, str | None]
) -> None:
    root = tmp_path_factory.mktemp("system")
    written = {k: v and v.encode("utf-8", "replace").decode() for k, v in changes.items()}
    system = make_system(root, written)
    findings = [*look_at_processor(system), *look_at_memory(system, ())]
    shutil.rmtree(root)
    assert len(findings) == 8
    assert all(one.level in LEVELS and one.seen for one in findings)


@given(st.sets(st.integers(0, 5000)))
def test_a_list_of_processors_is_read_as_it_is_written(numbers: set[int]) -> None:
    assert numbers_of(ranges_of(tuple(sorted(numbers)))) == tuple(sorted(numbers))


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "1,,2", "1-x", None, "²"])
def test_a_damaged_list_is_no_list(text: str | None) -> None:
    assert numbers_of(text) == ()


def test_a_range_without_end_is_cut() -> None:
    assert len(numbers_of("0-99999999999")) < 10**6


# Cards.

HEALTHY = (
    "0, NVIDIA H200, 570.86.15, Enabled, Disabled, Default, 31, 345, 1980, 0, 0x0000000000000001"
)
NEW_FIELD, OLD_FIELD = "clocks_event_reasons.active", "clocks_throttle_reasons.active"


def fake_smi(folder: Path, cards: str, processes: str = "", *, knows: str = NEW_FIELD) -> None:
    """Make an ``nvidia-smi`` that answers the two queries, and refuses fields as the real one."""
    script(
        folder / "nvidia-smi",
        f"""
case "$1" in
--query-gpu=*{knows}) cat <<'END'
{cards}
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
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is first on PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "nothing"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.mark.parametrize("knows", [NEW_FIELD, OLD_FIELD])
def test_a_healthy_card_is_all_ok(tmp_path: Path, programs: Path, knows: str) -> None:
    fake_smi(programs, HEALTHY, knows=knows)
    findings = tuple(look_at_cards(System(tmp_path), wanted=True))
    assert {one.level for one in findings} == {"ok"}
    told = {one.check: one.seen for one in findings}
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
def test_what_a_card_says_decides(
    tmp_path: Path, programs: Path, check: str, level: str, change: tuple[str, str]
) -> None:
    assert change[0] in HEALTHY
    fake_smi(programs, HEALTHY.replace(*change, 1))
    findings = look_at_cards(System(tmp_path), wanted=True)
    assert only(findings, f"GPU 0 {check}").level == level


def test_every_card_and_every_process_is_told(tmp_path: Path, programs: Path) -> None:
    cards = f"{HEALTHY}\n{HEALTHY.replace('0', '1', 1)}"
    fake_smi(programs, cards, "4711, /usr/bin/python, 812\n12, [Not Found], [N/A]")
    findings = tuple(look_at_cards(System(tmp_path), wanted=True))
    assert {"GPU 0", "GPU 1"} <= {one.check for one in findings}
    found = only(findings, "GPU processes")
    assert (found.level, found.seen) == ("warning", "2 visible")
    assert found.hint.endswith(": /usr/bin/python (4711, 812 MiB), unknown (12, ? MiB)")


@pytest.mark.parametrize(("wanted", "level"), [(True, "wrong"), (False, "ok")])
@pytest.mark.usefixtures("empty_path")
def test_no_driver_matters_to_those_who_want_a_card(
    tmp_path: Path,
    wanted: bool,  # noqa: FBT001  (pytest passes by name)
    level: str,
) -> None:
    found = only(look_at_cards(System(tmp_path), wanted=wanted), "GPU")
    assert (found.level, "no NVIDIA driver" in found.seen) == (level, True)


@pytest.mark.usefixtures("empty_path")
def test_a_driver_without_its_program_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    assert only(look_at_cards(System(tmp_path), wanted=False), "GPU").level == "wrong"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("echo Failed to initialize NVML: Driver/library version mismatch; exit 18", "mismatch"),
        ("exit 9", "exit status 9"),
        ("echo 0, NVIDIA", "returned 2 fields, not 11"),
    ],
)
def test_a_driver_that_fails_is_told_in_its_words(
    tmp_path: Path, programs: Path, text: str, seen: str
) -> None:
    script(programs / "nvidia-smi", text)
    for wanted, level in ((True, "wrong"), (False, "warning")):
        found = only(look_at_cards(System(tmp_path), wanted=wanted), "GPU")
        assert (found.level, seen in found.seen) == (level, True), found


def test_a_card_that_hangs_is_given_up(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ivhl.measure.gpu._PATIENCE_S", 0.2)
    script(programs / "nvidia-smi", "exec sleep 60")
    found = only(look_at_cards(System(tmp_path), wanted=True), "GPU")
    assert (found.level, "does not finish" in found.seen) == ("wrong", True)


# What records keep of it.


def test_a_record_keeps_what_changes_the_pace_of_the_processor(tmp_path: Path) -> None:
    system = make_system(tmp_path, {f"{CPU}/intel_pstate/no_turbo": "0"})
    assert [(one.check, one.level, one.seen) for one in observe("cpu", system)] == [
        ("load", "ok", "0.05 in the last minute, 4 CPUs allowed"),
        ("governor", "ok", "performance on 4"),
        ("turbo", "warning", "on"),
    ]


def test_a_record_keeps_how_steady_cards_are_and_no_path(tmp_path: Path, programs: Path) -> None:
    busy = HEALTHY.replace(" 31,", " 71,").replace(" 0, 0x", " 37, 0x")
    fake_smi(programs, busy, "4711, /home/me/bin/python, 812")
    system = make_system(tmp_path, {})
    assert len(observe("cpu", system)) == 3
    assert [(one.check, one.level, one.seen) for one in observe("cuda", system)[3:]] == [
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
    seen = observe("cuda", make_system(tmp_path, {}))
    assert "not reported" in seen[-1].seen
    assert not [one for one in seen if "/" in one.seen]


@pytest.mark.usefixtures("empty_path")
def test_a_machine_without_the_program_of_its_card_is_measured(tmp_path: Path) -> None:
    *_, last = observe("cuda", make_system(tmp_path, {}))
    assert (last.check, last.level) == ("GPU", "warning")


def test_a_look_that_fails_keeps_what_was_seen_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(_: System) -> Finding:
        raise RuntimeError

    monkeypatch.setattr("ivhl.measure.stability._turbo", break_down)
    found = observe("cpu", make_system(tmp_path, {}))
    assert [one.check for one in found] == ["load", "governor"]


def test_a_long_text_of_the_kernel_is_cut_for_records(tmp_path: Path) -> None:
    names = {f"{CPU}/cpu{n}/cpufreq/scaling_governor": f"{n}" * 60 for n in range(4)}
    assert len(observe("cpu", make_system(tmp_path, names))[1].seen) == 100


# Disk, programs, names.


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
    assert only(look_at_storage(tmp_path), "disk").level == level


def test_a_cache_elsewhere_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    assert only(look_at_storage(tmp_path), "uv cache").level == "ok"
    elsewhere = Path("/proc")
    if not elsewhere.is_dir():
        pytest.skip("no /proc, the one file system that is surely another")
    monkeypatch.setenv("UV_CACHE_DIR", str(elsewhere))
    found = only(look_at_storage(tmp_path), "uv cache")
    assert (found.level, str(elsewhere) in found.seen) == ("warning", True)


def test_programs_that_are_there_are_ok(tmp_path: Path, programs: Path) -> None:
    root = find_root(Path(__file__))
    findings = tuple(look_at_tools(root, ()))
    assert {one.check: one.level for one in findings} == {
        "uv": "ok",
        "git": only(findings, "git").level,  # a checkout of CI may be shallow
        "C++ compiler": "ok",
    }
    script(programs / "git", '[ "$1" = --version ] && echo git 2 || echo true')
    found = only(look_at_tools(tmp_path, ()), "git")
    assert (found.level, "shallow" in found.seen) == ("warning", True)


@pytest.mark.usefixtures("empty_path")
def test_programs_that_are_missing_are_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path))
    findings = tuple(look_at_tools(tmp_path, ["3.99"]))
    assert only(findings, "git").level == "wrong"
    assert "no-such-compiler" in only(findings, "C++ compiler").seen
    assert only(findings, "C++ compiler").level == "wrong"
    assert only(findings, "Python 3.99").level == "warning"


def test_git_outside_of_a_clone_is_wrong(tmp_path: Path) -> None:
    assert only(look_at_tools(tmp_path, ()), "git").level == "wrong"


def test_a_compiler_without_openmp_is_wrong(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    script(programs / "g++", "echo 'fatal error: omp.h: No such file' >&2; exit 1")
    found = only(look_at_tools(tmp_path, ()), "C++ compiler")
    assert (found.level, "omp.h" in found.seen) == ("wrong", True)


def test_a_python_without_headers_is_wrong(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = json.dumps(
        {
            "executable": str(programs / "python3.12"),
            "full_version": "3.12.9",
            "minor": "3.12",
            "free_threaded": False,
            "implementation": "cpython",
        }
    )
    header = f"echo {tmp_path}/Python.h"
    body = f"case $3 in *get_paths*) {header} ;; *) echo '{answer}' ;; esac"
    script(programs / "python3.12", body)
    monkeypatch.setenv("HOME", str(tmp_path))
    found = only(look_at_tools(tmp_path, ["3.12"]), "Python 3.12")
    assert (found.level, "Python.h" in found.seen) == ("wrong", True)
    (tmp_path / "Python.h").touch()
    assert only(look_at_tools(tmp_path, ["3.12"]), "Python 3.12").level == "ok"


def test_a_name_belongs_to_one_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    here = this_machine("lab-1")
    assert only(look_at_names(tmp_path, here), "machine name").level == "ok"
    known = asv_machine(here)
    (tmp_path / "lab-1").mkdir()
    (tmp_path / "lab-1" / "machine.json").write_text(json.dumps(known), encoding="utf-8")
    assert "is this machine" in only(look_at_names(tmp_path, here), "machine name").seen
    (tmp_path / "lab-1" / "machine.json").write_text(
        json.dumps(known | {"cpu": "Another"}), encoding="utf-8"
    )
    found = only(look_at_names(tmp_path, here), "machine name")
    assert (found.level, "'Another' there" in found.seen) == ("wrong", True)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ('{"version": 1, "a": {}}', "ok"),
        ('{"version": 2}', "wrong"),
        ("{", "wrong"),
        ("[]", "wrong"),
        ("{}", "wrong"),
    ],
)
def test_a_damaged_list_of_machines_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, level: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".asv-machine.json").write_text(text, encoding="utf-8")
    found = only(look_at_names(tmp_path, this_machine("lab-1")), "asv machine file")
    assert found.level == level


# The command.


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["doctor", *arguments])
    assert not done.exception or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def test_the_exit_code_tells_whether_something_is_wrong(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(find_root(Path(__file__)))
    fake_smi(programs, HEALTHY.replace("Default", "Prohibited"))
    code, text = run("--device", "cuda", "--machine", "a-new-name", "--format", "json")
    report = json.loads(text)
    assert (code, report["schema"], report["machine"]["name"]) == (
        1,
        "ivhl.doctor/1",
        "a-new-name",
    )
    wrong = {one["check"] for one in report["findings"] if one["level"] == "wrong"}
    assert "GPU 0 compute mode" in wrong
    assert report["counts"]["wrong"] == len(wrong)
    code, text = run("--device", "cuda", "--machine", "a-new-name")
    assert code == 1
    assert "wrong   GPU 0 compute mode" in text
    assert "next: sudo nvidia-smi -i 0 -c DEFAULT" in text
    fake_smi(programs, HEALTHY)
    report = json.loads(run("--format", "json", "--machine", "a-new-name")[1])
    left = {one["check"] for one in report["findings"] if one["level"] == "wrong"}
    assert left == wrong - {"GPU 0 compute mode"}
