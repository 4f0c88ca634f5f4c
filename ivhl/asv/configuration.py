"""Load asv's configuration from the project, and write the one of a run."""

from __future__ import annotations

import json
import re
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from ivhl.errors import SpecError
from ivhl.git import default_branch, top_level
from ivhl.matrix.project import Project, load_project
from ivhl.matrix.spec import read_plain
from ivhl.measure.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ivhl.matrix.locks import LockState
    from ivhl.measure.effort import Effort
    from ivhl.records.record import Machine

# Folder of the benchmarks for asv. In a cell, asv puts its parent first on sys.path, so the parent
# must contain nothing else.
SUITE: Final = Path(__file__).parent / "cells" / "suite"
PLUGIN: Final = ".ivhl.asv"
# asv's own folders in the project: its pages, and its results of ivhl's suite, which nothing reads
# afterwards: the records have them.
HTML: Final = ".asv/html"
SCRATCH: Final = ".asv/results"
# What an asv.conf.json for other benchmarks says about the project itself.
_OF_THE_PROJECT: Final = frozenset({"project", "project_url", "show_commit_url", "branches"})
_OF_ONE_SITE: Final = (
    _OF_THE_PROJECT
    | {"plugins", "results_dir", "html_dir", "hash_length"}
    | {"regressions_first_commits", "regressions_thresholds"}
)
# A parameter of asv's graphs: results of a GPU and of the CPU must not be in one graph.
DEVICE_VARIABLE: Final = "IVHL_DEVICE"
# Of the format of the configuration: asv's ``Config.api_version``.
VERSION: Final = 1


def load_configuration(root: Path) -> dict[str, Any]:
    """Return asv's configuration of the project, with absolute paths.

    asv changes into the folder of its configuration file, and ours is in another folder.

    Raises:
        SpecError: If the root is in no git repository, or ``asv.conf.json`` is there and cannot be
            read.
    """
    path = _file(root)
    conf: dict[str, Any] = {}
    if path.is_file():
        conf = _checked(path)
        if not _names_plugin(conf):
            # For asv benchmarks of the project's own, with results and a site of their own.
            conf = {key: conf[key] for key in _OF_THE_PROJECT & conf.keys()}
        elif not _is_of_our_suite(conf, path.parent):
            # The same, with one site for theirs and ours.
            conf = {key: conf[key] for key in _OF_ONE_SITE & conf.keys()}
    top = top_level(root)
    inside = root.resolve().relative_to(top).as_posix()
    asv_results = path.parent / conf.get("results_dir", "results")
    return (
        {"project": load_project(root).name, "branches": [default_branch(root)]}
        | conf
        | {
            "version": VERSION,
            "ivhl_root": str(root),
            "plugins": [PLUGIN, *(p for p in conf.get("plugins", ()) if p != PLUGIN)],
            "environment_type": "locked",
            "repo": str(top),
            "repo_subdir": "" if inside == "." else inside,
            "benchmark_dir": str(SUITE),
            "env_dir": str(root / conf.get("env_dir", ".asv/env")),
            "html_dir": str(path.parent / conf["html_dir"] if "html_dir" in conf else root / HTML),
            "results_dir": str(root / "results"),
            "asv_results_dir": str(asv_results),
        }
    )


def _file(root: Path) -> Path:
    """Return the project's ``asv.conf.json``: many have it in the folder of their asv suite.

    asv takes ``asv.conf.jsonc``, too; of both, which asv refuses, the first.
    """
    paths = [root / f"asv.conf{suffix}" for suffix in _SUFFIXES]
    for path in paths:
        if path.is_file():
            return path
    for inner in sorted(root.glob("*/asv.conf.json*")):
        with suppress(Exception):  # one that cannot be read is somebody else's
            if inner.suffix in _SUFFIXES and _names_plugin(_read(inner)):
                return inner
    return paths[0]


def _is_of_our_suite(conf: Mapping[str, Any], folder: Path) -> bool:
    suite = (folder / conf.get("benchmark_dir", SUITE)).resolve()
    return suite == SUITE.resolve() and conf.get("environment_type") in (None, "", "locked")


def _names_plugin(conf: Mapping[str, Any]) -> bool:
    return any(name.startswith(PLUGIN) for name in conf.get("plugins", ()))


def _checked(path: Path) -> dict[str, Any]:
    try:
        conf: dict[str, Any] = _read(path)
    except Exception as error:
        raise SpecError(f"{path} cannot be read: {error}", hint="correct it") from error
    if mistakes := _mistakes(conf):
        raise SpecError(
            "\n".join(f"{path.name}: {mistake}" for mistake in mistakes),
            hint=f"correct {path}; asv's documentation has its keys",
        )
    return conf


def _read(path: Path) -> Any:  # noqa: ANN401  (JSON)
    """Return what a configuration holds; only one that is not plain JSON of today needs asv."""
    with suppress(ValueError, RecursionError):
        conf = json.loads(read_plain(path))
        if isinstance(conf, dict) and conf.get("version") == VERSION:
            del conf["version"]
            return conf
    from asv.util import load_json  # noqa: PLC0415  (asv takes a third of a second to import)

    return load_json(str(path), VERSION, js_comments=True)


def _mistakes(conf: Mapping[str, Any]) -> list[str]:
    """Return the values of the wrong type: asv itself checks none, and fails somewhere later."""
    found = []
    for rule, kind, keys in _RULES:
        for key in conf.keys() & keys.split():
            try:
                TypeAdapter(kind).validate_python(conf[key], strict=True)
            except ValidationError:
                text = json.dumps(conf[key])
                found.append(f"{key}: must be {rule} (got {text[:_SHOWN]})")
    return sorted(found)


def _pattern(text: str) -> str:
    try:
        with warnings.catch_warnings():
            # One that may mean another thing in a later Python is one all the same.
            warnings.simplefilter("ignore")
            re.compile(text)
    # "a{99999999999}", and thousands of brackets
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError from error
    return text


_SHOWN: Final = 60
_SUFFIXES: Final = (".json", ".jsonc")  # those that asv itself looks for
# Names of files and branches hold no null byte; pydantic refuses half of a character.
_Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]
# Each row: a rule, the type that checks the rule, and keys of asv 0.6.6.
_RULES: Final[tuple[tuple[str, Any, str], ...]] = (
    ("a text", _Text, "project project_url repo repo_subdir show_commit_url benchmark_dir"),
    ("a text", _Text, "env_dir results_dir html_dir"),
    ("a text or null", _Text | None, "dvcs environment_type launch_method conda_environment_file"),
    ("a list of texts", list[_Text], "branches plugins conda_channels"),
    (
        "a list of texts, a text or null",
        list[_Text] | _Text | None,
        "pythons build_command install_command uninstall_command",
    ),
    ("a list of tables", list[dict[str, Any]], "include exclude"),
    ("a table", dict[str, Any], "matrix"),
    (
        "a table of regular expressions",
        dict[Annotated[str, AfterValidator(_pattern)], Any],
        "regressions_first_commits regressions_thresholds",
    ),
    (
        "a positive number",
        Annotated[float, Field(gt=0, lt=1e9)],
        "install_timeout default_benchmark_timeout hash_length",
    ),
    ("an integer from 0", Annotated[int, Field(ge=0)], "build_cache_size"),
)


def settings_of_project(
    project: Project, machine: Machine, results: Path, effort: Effort | None = None
) -> Settings:
    """Return the settings of a run in the checkout of a project (``Settings.of_checkout``)."""
    return Settings.of_checkout(
        project.root,
        project=project.name,
        workloads=project.workloads,
        machine=machine,
        results=results,
        effort=effort,
    )


def write_configuration(root: Path, settings: Settings, locks: Sequence[LockState]) -> Path:
    """Write asv's configuration for these cells, and return its path.

    Raises:
        SpecError: See ``load_configuration``.
    """
    conf = load_configuration(root) | {
        "results_dir": str(root / SCRATCH),
        "pythons": [],
        "matrix": {},
        "include": [
            {"python": lock.cell.python, "req": {"torch": lock.cell.torch}} for lock in locks
        ],
    }
    if settings.effort.device != "cpu":
        for cell in conf["include"]:
            cell["env_nobuild"] = {DEVICE_VARIABLE: settings.effort.device}
    path = root / ".asv" / "asv.conf.json"
    path.write_text(json.dumps(conf, indent=1), encoding="utf-8")
    return path
