"""asv's result files that asv cannot read: such a file stops it, or it skips it without a word."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from asv.benchmarks import Benchmarks
from asv.machine import Machine
from asv.results import Results
from asv.util import load_json

from ivhl.tracker.store.records import Problem

if TYPE_CHECKING:
    from pathlib import Path

_LONGEST_PART: Final = 240  # a part of a path has at most 255, and asv adds an ending


def foreign_files(results: Path) -> tuple[Path, ...]:
    """Return the files in the results folder that asv would read, and that neither made."""
    return tuple(
        path
        for path in sorted(results.rglob("*.json"))
        if path != results / "benchmarks.json"
        and not (
            path.parent.parent == results
            and ((path.parent / "machine.json").exists() or (path.parent / "records").is_dir())
        )
    )


def unreadable_files(results: Path) -> tuple[Problem, ...]:
    """Return asv's files that ``asv publish`` would skip, or on which it would stop.

    asv reads every ``*.json`` below its results. On some invalid files it stops with a traceback
    after it has deleted the old site.
    """
    problems = []
    for path in sorted(results.rglob("*.json")):
        if path.is_dir():
            continue
        rule = _why_unreadable(path, is_list=path == results / "benchmarks.json")
        if rule:
            problems.append(Problem(path, None, rule))
    return tuple(problems)


def _why_unreadable(path: Path, *, is_list: bool) -> str:
    # A pipe would never end, and a device never be read.
    if not path.is_file():
        return "must be a plain file"
    try:
        if is_list:
            return _list_mistake(load_json(str(path), Benchmarks.api_version))
        if path.name == "machine.json":
            return _machine_mistake(load_json(str(path), Machine.api_version), path.parent.name)
        return _results_mistake(Results.load(str(path)))
    except Exception as error:  # noqa: BLE001  (a bad file can make asv raise anything)
        # The site is public, and asv's messages contain folder names of this machine.
        message = str(error).replace(str(path), path.name)
        return f"asv cannot read it: {type(error).__name__}: {message}"


def _machine_mistake(about: dict[str, Any], folder: str) -> str:
    if about.get("machine") != folder:
        return (
            f"machine: must be {folder!r}, the name of its folder (got {about.get('machine')!r})"
        )
    return _params_mistake({key: value for key, value in about.items() if key != "version"})


def _results_mistake(loaded: Any) -> str:  # noqa: ANN401  (asv has no types)
    if rule := _params_mistake(loaded.params | loaded.env_vars):
        return rule
    for name in loaded.get_all_result_keys():
        values = loaded.get_result_value(name, loaded.get_result_params(name) or [])
        if not _publishable(values):
            return f"{name}: a result must be a finite number or null (got {values!r})"
    return ""


def _list_mistake(benchmarks: Mapping[str, Any]) -> str:
    """Return the mistake in a list of benchmarks; their names become file names and addresses."""
    for name, benchmark in benchmarks.items():
        if name != "version" and not (
            re.fullmatch(r"[\w.]{1,200}", name, re.ASCII) and benchmark["name"] == name
        ):
            return (
                f"a benchmark must have the name of a function (got {ascii(name)[:_LONGEST_PART]})"
            )
    return ""


def _params_mistake(params: Mapping[str, Any]) -> str:
    """Return the mistake in parameters of asv's graphs: each is a part of a path."""
    for key, value in params.items():
        if not isinstance(value, str | None):
            return f"{ascii(key)[:_LONGEST_PART]}: must be a string (got {type(value).__name__})"
        if len(f"{key}-{value}".encode()) > _LONGEST_PART:
            got = len(f"{key}-{value}".encode())
            return f"{ascii(key)[:20]}: may have {_LONGEST_PART} bytes with its value (got {got})"
    return ""


def _publishable(values: object) -> bool:
    """Return whether asv can publish these values; it writes NaN for a skipped benchmark."""
    if isinstance(values, str | dict):
        return False
    if isinstance(values, Iterable):
        return all(_publishable(value) for value in values)
    return values is None or (isinstance(values, int | float) and not math.isinf(values))
