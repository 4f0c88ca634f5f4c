"""Load asv's configuration from the project, and write the one of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from asv.config import Config
from asv.util import load_json

from ivhl.errors import SpecError
from ivhl.git import default_branch, top_level
from ivhl.matrix.project import load_project

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.matrix.locks import LockState
    from ivhl.measure.settings import Settings

# Folder of the benchmarks for asv. In a cell, asv puts its parent first on sys.path, so the parent
# must contain nothing else.
SUITE: Final = Path(__file__).parent / "cells" / "suite"
PLUGIN: Final = ".ivhl.asv"
# The plugin's name before 2026-11-23.
FORMER_PLUGIN: Final = ".ivhl.asv_plugins"
# What an asv.conf.json for other benchmarks says about the project itself.
_OF_THE_PROJECT: Final = frozenset({"project", "project_url", "show_commit_url", "branches"})
# A parameter of asv's graphs: results of a GPU and of the CPU must not be in one graph.
DEVICE_VARIABLE: Final = "IVHL_DEVICE"


def load_configuration(root: Path) -> dict[str, Any]:
    """Return asv's configuration of the project, with absolute paths.

    asv changes into the folder of its configuration file, and ours is in another folder.

    Raises:
        SpecError: If the root is in no git repository, or ``asv.conf.json`` is there and cannot be
            read, or is in the format of an earlier ivhl.
    """
    path = root / "asv.conf.json"
    conf: dict[str, Any] = {}
    if path.is_file():
        try:
            conf = load_json(str(path), Config.api_version, js_comments=True)
        except Exception as error:
            raise SpecError(f"{path} cannot be read: {error}", hint="correct it") from error
        if FORMER_PLUGIN in conf.get("plugins", ()):
            raise SpecError(
                f"{path}: plugins: {FORMER_PLUGIN!r} is now {PLUGIN!r}",
                hint=f'write "plugins": ["{PLUGIN}"]; the project needs no copy of asv benchmarks',
            )
        if not any(name.startswith(PLUGIN) for name in conf.get("plugins", ())):
            # For asv benchmarks of the project's own, with results and a site of their own.
            conf = {key: conf[key] for key in _OF_THE_PROJECT & conf.keys()}
    top = top_level(root)
    inside = root.resolve().relative_to(top).as_posix()
    return (
        {"project": load_project(root).name, "branches": [default_branch(root)]}
        | conf
        | {
            "version": Config.api_version,
            "ivhl_root": str(root),
            "plugins": [PLUGIN, *(p for p in conf.get("plugins", ()) if p != PLUGIN)],
            "environment_type": "locked",
            "repo": str(top),
            "repo_subdir": "" if inside == "." else inside,
            "benchmark_dir": str(SUITE),
            "env_dir": str(root / conf.get("env_dir", ".asv/env")),
            "html_dir": str(root / conf.get("html_dir", "site")),
            "results_dir": str(root / conf.get("results_dir", "results")),
        }
    )


def write_configuration(root: Path, settings: Settings, locks: Sequence[LockState]) -> Path:
    """Write asv's configuration for these cells, and return its path.

    Raises:
        SpecError: See ``load_configuration``.
    """
    conf = load_configuration(root) | {
        "results_dir": settings.results,
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
