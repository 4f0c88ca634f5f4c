"""The table of executors: those of ivhl, and what other distributions add or break."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Final

import pytest
from typer.testing import CliRunner

from ivhl.bench.executors import executor_of
from ivhl.bench.main import INTERFACE, Executor
from ivhl.bench.slurm import SlurmExecutor
from ivhl.cli import app
from ivhl.errors import SpecError, UnknownNameError
from ivhl.image.build import EngineError
from ivhl.image.executor import DockerExecutor
from ivhl.measure.alone import refuse_without_device
from tests.builders.fleet import make_fleet_project

if TYPE_CHECKING:
    from pathlib import Path

MODULE: Final = """
from ivhl.bench.main import Executor


class Good(Executor):
    interface = {interface}

    def machine(self, request):
        raise KeyError("no such machine")


class Silent(Executor):
    pass


class Newer(Executor):
    interface = {interface} + 1


class Broken(Executor):
    interface = {interface}

    def __init__(self, root):
        raise OSError("no route to host")


def not_a_class(root):
    return Good(root)
"""


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder on the path with a distribution that adds executors."""
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "extra_executors.py").write_text(MODULE.format(interface=INTERFACE))
    distribution(
        folder, "extra", "1.2",
        good="extra_executors:Good", silent="extra_executors:Silent",
        newer="extra_executors:Newer", broken="extra_executors:Broken",
        function="extra_executors:not_a_class", missing="nowhere_to_be_found:Good",
    )  # fmt: skip
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "extra_executors", raising=False)
    return folder


def distribution(folder: Path, name: str, version: str, **executors: str) -> None:
    """Install a distribution that has nothing but these executors."""
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{key} = {value}" for key, value in executors.items()]
    (about / "entry_points.txt").write_text("\n".join(["[ivhl.executors]", *lines]))


def test_the_executors_of_ivhl_are_in_the_table(tmp_path: Path) -> None:
    here, slurm = (executor_of(name, tmp_path) for name in ("here", "slurm"))
    assert (type(here), type(slurm)) == (Executor, SlurmExecutor)
    assert (slurm.name, slurm.distribution, slurm.root) == ("slurm", "ivhl", tmp_path)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_docker_is_in_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    with pytest.raises(EngineError):  # of the engine, which it needs
        executor_of("docker", tmp_path)
    gc.collect()  # of docker's client, a socket that did not connect
    assert not DockerExecutor.keeps_compiled


@pytest.mark.usefixtures("added")
def test_a_distribution_adds_an_executor(tmp_path: Path) -> None:
    good = executor_of("good", tmp_path)
    assert (good.name, good.distribution, good.root) == ("good", "extra 1.2", tmp_path)
    with pytest.raises(UnknownNameError) as error:
        executor_of("goood", tmp_path)
    assert error.value.hint == "did you mean good?"


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("silent", f"its class must set interface = {INTERFACE} (got None)"),
        ("newer", f"its class must set interface = {INTERFACE} (got {INTERFACE + 1})"),
        ("broken", "OSError: no route to host"),
        (
            "function",
            "must be a class that derives from ivhl.bench.main.Executor (got <function not_a",
        ),
        ("missing", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
    ],
)
def test_a_distribution_is_named_in_what_is_wrong_with_its_executor(
    tmp_path: Path, name: str, rule: str
) -> None:
    with pytest.raises(SpecError) as error:
        executor_of(name, tmp_path)
    assert str(error.value).startswith(f"--executor {name} of extra 1.2: {rule}")
    assert "update extra 1.2" in error.value.hint


@pytest.mark.parametrize("name", ["good", "here"])
def test_a_name_of_two_distributions_is_refused(added: Path, tmp_path: Path, name: str) -> None:
    distribution(added, "another", "2.0", **{name: "extra_executors:Good"})
    with pytest.raises(SpecError, match="must be the name of one executor") as error:
        executor_of(name, tmp_path)
    other = "extra 1.2" if name == "good" else "ivhl"
    assert {other, "another 2.0"} == {*error.value.hint.partition(": ")[2].split(" and ")}


def test_of_two_versions_of_a_distribution_the_first_on_the_path_counts(
    added: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "earlier"))
    distribution(tmp_path / "earlier", "extra", "1.3", good="extra_executors:Good")
    assert executor_of("good", tmp_path).distribution == "extra 1.3"
    assert (added / "extra-1.2.dist-info").is_dir()


@pytest.mark.parametrize("is_named", [True, False])
def test_a_project_adds_no_executor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_named: bool
) -> None:
    """``python -m ivhl`` looks in the current folder, which somebody else may have written."""
    root = tmp_path / "project"
    root.mkdir()
    distribution(root, "hostile", "1.0", evil="nowhere:Evil", here="nowhere:Evil")
    monkeypatch.chdir(tmp_path if is_named else root)
    monkeypatch.syspath_prepend(str(root) if is_named else "")
    assert executor_of("here", root).distribution == "ivhl"
    with pytest.raises(UnknownNameError):
        executor_of("evil", root)


@pytest.mark.usefixtures("added")
def test_what_an_executor_raises_while_it_measures_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "project"
    root.mkdir()
    make_fleet_project(root)
    monkeypatch.chdir(root)
    done = CliRunner().invoke(app, ["bench", "--executor", "good", "--no-publish"])
    assert isinstance(done.exception, SpecError)
    assert str(done.exception) == "--executor good of extra 1.2: KeyError: 'no such machine'"


def test_a_file_of_the_current_folder_answers_for_no_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text(
        "def ones(*_, **__): pass\nclass xpu: synchronize = print\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, match="--device xpu: this PyTorch sees no such device"):
        refuse_without_device("xpu")
