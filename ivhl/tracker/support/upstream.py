"""Reports of PyTorch that are known to describe a failure, from ``upstream.toml``."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ivhl.records.record import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """A report, and which failures it describes: those for which all that is given holds.

    Attributes:
        message: A regular expression that occurs in the failure's message.
        workload: A regular expression for the whole name of a workload, or ``library: case``.
        releases: PyTorch releases that have the defect; empty for all.
        stage: First stage of the compiler that shows it, where it has no message.
        script: Regular expressions that all occur in a script which shows it.
    """

    url: str
    title: str
    message: str = ""
    failure_class: str = ""
    workload: str = ""
    releases: tuple[str, ...] = ()
    stage: str = ""
    script: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        """Where it is, e.g. ``pytorch/pytorch#144048``."""
        *_, owner, name, _, number = self.url.split("/")
        return f"{owner}/{name}#{number}"

    def names(self, workload: str) -> bool:
        """Return whether this is a report on a workload, or on a ``library: case``."""
        return re.fullmatch(self.workload, workload) is not None

    def describes(self, record: RunRecord) -> bool:
        """Return whether this is the reason of a record's failure."""
        failure = record.failure
        return (
            failure is not None
            and bool(self.message or self.failure_class)
            and self.failure_class in ("", failure.failure_class)
            and (not self.workload or self.names(record.workload))
            and (not self.releases or record.cell.torch in self.releases)
            and (not self.message or re.search(self.message, failure.message) is not None)
        )


@cache
def known_issues() -> tuple[Issue, ...]:
    """Return all reports."""
    text = (files("ivhl.tracker.support") / "upstream.toml").read_text(encoding="utf-8")
    found = tomllib.loads(text)["issue"]
    lists = ("releases", "script")
    return tuple(Issue(**one | {key: tuple(one.get(key, ())) for key in lists}) for one in found)


def described(message: str) -> tuple[Issue, ...]:
    """Return the reports that describe a failure by its message alone."""
    return tuple(one for one in known_issues() if one.message and re.search(one.message, message))


def of_script(text: str, stage: str, torch: str) -> tuple[Issue, ...]:
    """Return the reports that a script perhaps shows.

    Args:
        text: The script.
        stage: First stage of the compiler that shows a symptom in it.
        torch: A release in which it does.
    """
    return tuple(
        one
        for one in known_issues()
        if one.script
        and one.stage == stage
        and (not one.releases or torch in one.releases)
        and all(re.search(pattern, text) for pattern in one.script)
    )


def issues_of(record: RunRecord) -> tuple[Issue, ...]:
    """Return the reports that describe a record's failure."""
    if record.failure is None:
        return ()
    return tuple(issue for issue in known_issues() if issue.describes(record))
