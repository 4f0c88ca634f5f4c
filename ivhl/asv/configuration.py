"""Load asv's configuration from the project, and write the one of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from asv.config import Config
from asv.util import load_json

from ivhl.errors import SpecError

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
# A parameter of asv's graphs: results of a GPU and of the CPU must not be in one graph.
DEVICE_VARIABLE: Final = "IVHL_DEVICE"


def load_configuration(root: Path) -> dict[str, Any]:
    """Return the project's ``asv.conf.json`` with absolute paths.

    asv changes into the folder of its configuration file, and ours is in another folder.

    Raises:
        SpecError: If it is missing, cannot be read, or is in the format of an earlier ivhl.
    """
    path = root / "asv.conf.json"
    if not path.is_file():
        raise SpecError(f"no asv.conf.json in {root}", hint="run this inside an ivhl project")
    try:
        conf: dict[str, Any] = load_json(str(path), Config.api_version, js_comments=True)
    except Exception as error:
        raise SpecError(f"{path} cannot be read: {error}", hint="correct it") from error
    if not conf.get("repo"):
        raise SpecError(f"{path}: repo: required", hint='write "repo": "."')
    if FORMER_PLUGIN in conf.get("plugins", ()):
        raise SpecError(
            f"{path}: plugins: {FORMER_PLUGIN!r} is now {PLUGIN!r}",
            hint=f'write "plugins": ["{PLUGIN}"]; the project needs no copy of asv benchmarks',
        )
    return conf | {
        "version": Config.api_version,
        "ivhl_root": str(root),
        "repo": str(root / conf["repo"]) if (root / conf["repo"]).exists() else conf["repo"],
        "benchmark_dir": str(SUITE),
        "env_dir": str(root / conf.get("env_dir", ".asv/env")),
        "html_dir": str(root / conf.get("html_dir", "site")),
        "results_dir": str(root / conf.get("results_dir", "results")),
    }


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
