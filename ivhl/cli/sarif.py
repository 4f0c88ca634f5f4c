"""Findings as SARIF, which GitHub, GitLab and editors show at the lines of a pull request.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0.
"""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from urllib.parse import quote

from ivhl.records.text import printable, visible
from ivhl.tracker.wording import shortened

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
# GitHub shows 1,000 characters of a message.
_LONGEST: Final = 1000
_PLACE: Final = re.compile(r"\bat (?P<path>[\w./+@-]+\.py):(?P<line>\d+)")


class SarifResult(NamedTuple):
    """A finding at a line.

    Attributes:
        rule: Its kind, a key of the rules.
        level: How GitHub shows it.
        text: The message.
        path: File, relative to the root of the project, with slashes.
        line: From 1 on.
    """

    rule: str
    level: Literal["error", "warning", "note"]
    text: str
    path: str
    line: int


def to_sarif(rules: Mapping[str, str], results: Iterable[SarifResult]) -> str:
    """Return findings as SARIF.

    Args:
        rules: Kinds of findings, each with what it means.
        results: The findings.
    """
    return json.dumps(
        {
            "$schema": _SCHEMA,
            "version": "2.1.0",
            "runs": [
                {
                    "tool": {
                        "driver": {
                            "name": "ivhl",
                            "version": version("ivhl"),
                            "rules": [
                                {"id": name, "shortDescription": {"text": text}}
                                for name, text in rules.items()
                            ],
                        }
                    },
                    "results": [_result(one) for one in results],
                }
            ],
        },
        indent=1,
    )


def _result(one: SarifResult) -> dict[str, object]:
    place = {
        "artifactLocation": {"uri": quote(PurePosixPath(one.path).as_posix())},
        "region": {"startLine": max(one.line, 1)},
    }
    return {
        "ruleId": one.rule,
        "level": one.level,
        "message": {"text": shortened(visible(one.text), _LONGEST)},
        "locations": [{"physicalLocation": place}],
    }


def to_annotations(results: Iterable[SarifResult]) -> str:
    """Return findings as commands of a GitHub workflow, which shows them at their lines.

    Source: GitHub, "Workflow commands for GitHub Actions"; the escapes are those of its toolkit.
    """

    def escaped(text: str, more: str = "") -> str:
        return re.sub(f"[%\r\n{more}]", lambda found: f"%{ord(found[0]):02X}", text)

    lines = []
    for one in results:
        level = "notice" if one.level == "note" else one.level
        path, title = escaped(printable(one.path), ":,"), escaped(one.rule, ":,")
        text = escaped(shortened(visible(one.text), _LONGEST))
        lines.append(f"::{level} file={path},line={max(one.line, 1)},title={title}::{text}")
    return "\n".join(lines)


def place_in(texts: Iterable[str], files: Collection[str], otherwise: str) -> tuple[str, int]:
    """Return the first file and line of a project that texts name, or another file of it.

    Args:
        texts: Messages of failures and graph breaks: ``... at package/module.py:12 function``.
        files: Files of the project, from its root.
        otherwise: A file to return if no text names exactly one of them.
    """
    for text in texts:
        for found in _PLACE.finditer(text):
            named = [one for one in files if f"/{one}".endswith(f"/{found['path']}")]
            if len(named) == 1:
                return named[0], int(found["line"])
    return otherwise, 1
