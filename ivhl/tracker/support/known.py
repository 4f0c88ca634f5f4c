"""Known causes: defects and changes of PyTorch, a file each in ``causes/``, and how each shows."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Final, Literal, Protocol

from pydantic import Field, model_validator

from ivhl.matrix.spec import StrictModel
from ivhl.records.identity import CaseInCell
from ivhl.records.record import FailureClass  # noqa: TC001  (pydantic reads it)
from ivhl.tracker.support.expectations import Link, Pattern, Specifier, within

if TYPE_CHECKING:
    from typing import Self

Texts = Annotated[tuple[str, ...], Field(strict=False)]


class InCell(Protocol):
    """What says in which cell something was run."""

    @property
    def python(self) -> str: ...  # noqa: D102
    @property
    def torch(self) -> str: ...  # noqa: D102


class Sign(StrictModel):
    """How a cause shows: everything that is given must hold.

    Attributes:
        torch: PyTorch releases that have it, e.g. ``>=2.5.1,<2.7``.
        python: Pythons that have it.
        cases: Patterns of ``WORKLOAD/SIZE/VARIANT``, or of ``LIBRARY/CASE/ASK`` in the observatory.
        failure_class: How a case fails by it.
        message: A regular expression that occurs in the failure's message.
        side: Which code takes longer by it.
        stage: First stage of the compiler that shows it in a script.
        script: Regular expressions that all occur in a script that shows it.
    """

    torch: Specifier = ""
    python: Specifier = ""
    cases: Annotated[tuple[Pattern, ...], Field(strict=False)] = ("*",)
    failure_class: FailureClass | None = Field(default=None, alias="class")
    message: str = ""
    side: Literal["compiled", "eager"] | None = None
    stage: str = ""
    script: Texts = ()

    @model_validator(mode="after")
    def _shows(self) -> Self:
        if not (self.failure_class or self.message or self.side or self.script):
            raise ValueError("must have a class, a message, a side or a script")
        return self

    def covers(self, case: CaseInCell) -> bool:
        """Return whether a case in a cell can show this."""
        return (
            within(self.torch, case.torch)
            and within(self.python, case.python.removesuffix("t"))
            and any(fnmatchcase(case.name, pattern) for pattern in self.cases)
        )

    def is_failure(self, case: CaseInCell, failure_class: str, message: str) -> bool:
        """Return whether a case fails by this."""
        return (
            bool(self.failure_class or self.message)
            and self.failure_class in (None, failure_class)
            and (not self.message or re.search(self.message, message) is not None)
            and self.covers(case)
        )


class KnownCause(StrictModel):
    """A defect or change of PyTorch: a section of docs/findings.md.

    Attributes:
        name: That of its file, which begins with ``wrong``, ``fails``, ``breaks`` or ``slow``.
        title: The defect or change, in a line.
        url: A report of the cause; ``None`` if none is known.
        report: The title of the report, as PyTorch's page has it; empty if not known.
        signs: How it shows; of several, each alone.
        text: What more there is to say, as Markdown.
        script: A script that shows it, relative to the repository.
        python: The Python on which the script shows it.
        prints: Of PyTorch releases, what the script prints there.
        command: Where no script shows it, the command that does.
    """

    name: str
    title: str
    url: Link | None = None
    report: str = ""
    signs: Annotated[tuple[Sign, ...], Field(strict=False, alias="sign")] = ()
    text: str = ""
    script: str = ""
    python: str = "3.12"
    prints: Annotated[tuple[Texts, ...], Field(strict=False)] = ()
    command: str = ""

    @property
    def short(self) -> str:
        """Where the report is, e.g. ``pytorch/pytorch#144048``; empty without a report."""
        if self.url is None:
            return ""
        *_, owner, name, _, number = self.url.split("/")
        return f"{owner}/{name}#{number}"

    @property
    def plain(self) -> str:
        """The title without marks of Markdown."""
        return self.title.replace("`", "")

    def __str__(self) -> str:
        """Return the title, with the report if there is one."""
        return f"{self.plain} ({self.short})" if self.url else self.plain


_FOLDER: Final = files("ivhl.tracker.support") / "causes"


@cache
def known_causes() -> tuple[KnownCause, ...]:
    """Return all known causes, by the names of their files."""
    found = sorted(_FOLDER.iterdir(), key=lambda one: one.name)
    return tuple(
        KnownCause(name=one.name.removesuffix(".toml"), **tomllib.loads(one.read_text("utf-8")))
        for one in found
        if one.name.endswith(".toml")
    )


def causes_of(case: CaseInCell, failure_class: str, message: str) -> tuple[KnownCause, ...]:
    """Return the causes by which a case fails."""
    return tuple(
        one
        for one in known_causes()
        if any(sign.is_failure(case, failure_class, message) for sign in one.signs)
    )


def causes_in(
    cell: InCell, failure_class: str, message: str, name: tuple[str, str, str] = ("", "", "")
) -> tuple[KnownCause, ...]:
    """Return the causes by which code fails in a cell.

    Args:
        cell: A cell, or a record of it.
        failure_class: How it fails; empty if only the message tells.
        message: The failure's message.
        name: Library, case and ask in the observatory; of a script, empty.
    """
    workload, *rest = name
    case = CaseInCell("", "cpu", cell.python, cell.torch, False, workload, 0, *rest)  # noqa: FBT003
    return causes_of(case, failure_class, message)


def causes_of_script(text: str, stage: str, torch: str) -> tuple[KnownCause, ...]:
    """Return the causes that a script perhaps shows.

    Args:
        text: The script.
        stage: First stage of the compiler that shows a symptom in it.
        torch: A release in which it does.
    """
    return tuple(
        one
        for one in known_causes()
        if any(
            sign.script
            and sign.stage == stage
            and within(sign.torch, torch)
            and all(re.search(pattern, text) for pattern in sign.script)
            for sign in one.signs
        )
    )
