"""Which commit of ivhl is installed: a workflow calls its actions by that hash."""

from __future__ import annotations

import json
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ivhl.errors import SpecError
from ivhl.git import current_commit, top_level


def installed_commit() -> str:
    """Return the commit that the installed ivhl was made from.

    Raises:
        SpecError: If it was installed from an archive, which does not tell.
    """
    source: dict[str, Any] = {}
    with suppress(PackageNotFoundError, ValueError):
        source = json.loads(distribution("ivhl").read_text("direct_url.json") or "{}")
    if "vcs_info" in source:
        return str(source["vcs_info"]["commit_id"])
    cloned = unquote(urlsplit(source["url"]).path) if "dir_info" in source else ""
    for folder in (cloned, Path(__file__).parents[2]):
        with suppress(SpecError, OSError):
            # Around a folder of packages git finds the repository of somebody else.
            if folder and top_level(Path(folder)).samefile(folder):
                return current_commit(Path(folder))
    raise SpecError(
        "the commit of the installed ivhl is not known, and the workflow calls ivhl's actions by it",
        hint="install ivhl with git: python -m pip install git+https://github.com/ivhl/ivhl",
    )
