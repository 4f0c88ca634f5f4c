"""asv has the methods that we wrap, and its configuration agrees with the matrix."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import asv.config
import asv.environment
import asv.machine
import asv.results
import asv.util
import pytest
from asv.commands import run
from asv.commands.check import Check
from asv.commands.compare import Compare
from asv.commands.preview import Preview
from asv.commands.publish import Publish
from asv.commands.run import Run
from asv.commands.show import Show

import ivhl.asv
from ivhl.asv.configuration import _SUFFIXES, VERSION
from ivhl.asv.environment import Locked
from ivhl.asv.run import benchmark_regex
from ivhl.matrix.project import load_project
from ivhl.matrix.spec import load_matrix
from ivhl.measure.suite import operation_of
from ivhl.workload import load_workloads, select_cases

ROOT = Path(__file__).parents[2]
CONF = json.loads((ROOT / "asv.conf.json").read_text(encoding="utf-8"))
MATRIX = load_matrix(ROOT / "envs" / "matrix.toml")


def test_the_installed_asv_is_the_pinned_and_supported_one() -> None:
    assert version("asv") == ivhl.asv.SUPPORTED_ASV


def test_asv_names_the_pythons_and_the_default_tier_of_the_matrix() -> None:
    assert CONF["pythons"] == list(MATRIX.pythons_of("default"))
    assert CONF["matrix"] == {"req": {"torch": list(MATRIX.releases("default"))}}


def test_the_plugin_is_named_with_a_dot() -> None:
    # Without the dot, asv searches its own plugins and silently ignores the name.
    assert CONF["plugins"] == [".ivhl.asv"]


def test_the_plugin_registers_what_asv_looks_for_when_asv_loads_it() -> None:
    """And nothing of asv is imported before: that takes longer than many a publish may."""
    script = """
import sys
import ivhl.asv.publish
print([name for name in sys.modules if name.partition(".")[0] == "asv"])
from asv.plugin_manager import plugin_manager
plugin_manager.import_plugin(".ivhl.asv")
from asv.environment import get_environment_class_by_name
from asv.commands.publish import Publish
print(get_environment_class_by_name("locked").__name__)
print(hasattr(Publish.run, "__wrapped__"))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["[]", "Locked", "True"]


def test_the_format_of_the_configuration_is_the_one_that_asv_writes() -> None:
    assert asv.config.Config.api_version == VERSION
    # Of a function's own variable.
    assert f"extensions = {list(_SUFFIXES)}" in inspect.getsource(asv.config._get_config_path)


def test_our_environment_is_found_by_its_name() -> None:
    assert asv.environment.get_environment_class_by_name(CONF["environment_type"]) is Locked


@pytest.mark.parametrize(
    "name",
    [
        "create",
        "check_presence",
        "save_info_file",
        "_setup",
        "install_project",
        "_build_project",
        "_install_project",
        "_uninstall_project",
        "run",
        "matches",
    ],
)
def test_overridden_methods_exist_in_asv(name: str) -> None:
    theirs = inspect.signature(getattr(asv.environment.Environment, name))
    ours = inspect.signature(getattr(Locked, name))
    assert [p.kind for p in ours.parameters.values()] == [
        p.kind for p in theirs.parameters.values()
    ]


def test_used_attributes_of_an_environment_exist() -> None:
    source = inspect.getsource(asv.environment.Environment)
    for name in ("_install_timeout", "_global_env_vars", "_is_setup", "_project", "_env_dir"):
        assert f"self.{name} " in source


def test_only_a_process_error_makes_asv_leave_out_one_environment() -> None:
    assert "except util.ProcessError" in inspect.getsource(run._do_build)


def test_methods_are_wrapped_once() -> None:
    for _ in range(2):
        ivhl.asv.setup()
    assert not hasattr(asv.machine.Machine.save.__wrapped__, "__wrapped__")
    for command in (Check, Compare, Preview, Publish, Run, Show):
        assert next(iter(inspect.signature(command.run).parameters)) == "conf"
        assert command.run.__module__.startswith("asv.commands")  # whatever wraps it


def test_one_expression_selects_exactly_the_wanted_cases() -> None:
    workloads = load_workloads(load_project(ROOT).workloads)
    wanted = select_cases(workloads, names=[workloads[0].name])
    every = [
        case
        for workload in workloads
        for size in workload.sizes
        for case in select_cases(workloads, names=[workload.name], size=size)
    ]
    regex = re.compile(benchmark_regex(wanted))
    chosen = {
        case.name
        for case in every
        if regex.search(
            f"{operation_of(case.workload.name, case.workload).benchmark('failed')}"
            f"({case.size!r}, {case.variant.name!r})"
        )
    }
    assert chosen == {c.name for c in wanted}
