"""Remove the folders of this machine from the texts of a record: records are published."""

from __future__ import annotations

import re
import sys
import sysconfig
import tempfile
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def folders_here(scratch: str, project_path: str | None = None) -> dict[str, str]:
    """Return the folders of this machine that texts may name, to what stands for each.

    Args:
        scratch: Folder for temporary files of the run, by default in ``.asv`` of the project.
        project_path: See ``Run``.
    """
    installed = (sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib"))
    home = Path(scratch).parent
    found = {
        tempfile.gettempdir(): "<tmp>",
        _home(): "~",
        sys.base_prefix: "<python>",
        sys.prefix: "<cell>",
        str(Path(__file__).parents[2]): "",
        **({str(home.parent): ""} if home.name == ".asv" else {}),
        **dict.fromkeys(installed, ""),
        scratch: "<scratch>",
        project_path or "": "",
        # PyTorch leaves out what a file's path has in common with its own.
        "/".join(Path(project_path or "").parts[-2:]): "",
    }
    # "/" as a home, as in some containers, stands for nothing.
    return {folder.rstrip("/"): name for folder, name in found.items() if folder.strip("/")}


def without_folders(value: Any, folders: Mapping[str, str]) -> Any:  # noqa: ANN401  (of any type)
    """Return a value in whose texts no folder is named; the innermost folder wins.

    Args:
        value: A text, or a dataclass, tuple or dictionary with texts at any depth.
        folders: See ``folders_here``.
    """
    if isinstance(value, str):
        for folder in sorted(folders, key=len, reverse=True):
            if folder in value:
                name = folders[folder]
                # Also behind an option of a compiler: ``-I/usr/include``.
                begins = r"(?:(?<![\w.-])|(?<=\s-[A-Z]))"
                found = rf"{begins}{re.escape(folder)}(?:/|(?![\w.-]))"
                value = re.sub(found, f"{name}/" if name else "", value)
        return value
    if isinstance(value, tuple):
        return tuple(without_folders(one, folders) for one in value)
    if isinstance(value, dict):
        return {name: without_folders(one, folders) for name, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        held = {field.name: getattr(value, field.name) for field in fields(value)}
        changed = {name: without_folders(one, folders) for name, one in held.items()}
        return replace(value, **changed)
    return value


def _home() -> str:
    try:
        return str(Path.home())
    except RuntimeError:  # this user has none
        return ""
