"""Settings of hot paths: variables of the environment, and a YAML file of boundaries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ivhl.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

AUTO: Final = "IVHL_AUTO_COMPILE"
EVERYTHING: Final = "IVHL_COMPILE"
DEBUG: Final = "IVHL_DEBUG_COMPILE"
THRESHOLD: Final = "IVHL_HOTPATH_THRESHOLD"
MIN_CALLS: Final = "IVHL_HOTPATH_MIN_CALLS"
BOUNDARIES: Final = "IVHL_HOTPATH_BOUNDARIES"
ONLY_FASTER: Final = "IVHL_HOTPATH_ONLY_FASTER"

_MOST_DIGITS: Final = 9
_YES: Final = frozenset({"1", "true", "yes", "on"})
_NO: Final = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class BoundaryRule:
    """What a YAML file says of one boundary.

    Attributes:
        compile: Whether to compile what runs inside: without waiting, or never.
    """

    compile: bool


@dataclass(frozen=True, slots=True)
class HotpathSettings:
    """What the environment asks for.

    Attributes:
        auto: Whether blocks record; ``None`` if the environment does not say.
        everything: Whether to compile each sequence when it comes for the second time.
        debug: Whether to print the stream to standard error.
        threshold: Repetitions after which a sequence is hot, or ``None``.
        min_calls: Calls of the shortest sequence, or ``None``.
        boundaries: What the YAML file says, by name.
        only_faster: Whether to give up what is slower compiled.
    """

    auto: bool | None
    everything: bool
    debug: bool
    threshold: int | None
    min_calls: int | None
    boundaries: Mapping[str, BoundaryRule]
    only_faster: bool


def read_settings(environ: Mapping[str, str]) -> HotpathSettings:
    """Return the settings of an environment.

    Raises:
        SpecError: If a variable or the YAML file is invalid; names the value.
    """
    path = environ.get(BOUNDARIES, "")
    return HotpathSettings(
        auto=_switch(environ, AUTO),
        everything=bool(_switch(environ, EVERYTHING)),
        debug=bool(_switch(environ, DEBUG)),
        threshold=_count(environ, THRESHOLD),
        min_calls=_count(environ, MIN_CALLS),
        boundaries=load_boundaries(Path(path)) if path else {},
        only_faster=bool(_switch(environ, ONLY_FASTER)),
    )


def _switch(environ: Mapping[str, str], name: str) -> bool | None:
    text = environ.get(name, "").strip().lower()
    if not text:
        return None
    if text in _YES or text in _NO:
        return text in _YES
    raise SpecError(
        f"{name}: expected a switch (got {environ[name]!r:.60})",
        hint=f"{name}=1 switches it on, {name}=0 off",
    )


def _count(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "").strip()
    if not text:
        return None
    # Not int() alone, which takes "1_0" and digits of every script.
    if text.isascii() and text.isdigit() and 0 < len(text) <= _MOST_DIGITS and int(text) > 0:
        return int(text)
    raise SpecError(
        f"{name}: expected an integer from 1 (got {environ[name]!r:.60})",
        hint=f"{name}=10" if name == THRESHOLD else f"{name}=2",
    )


def load_boundaries(path: Path) -> dict[str, BoundaryRule]:
    """Return the rules of a YAML file: boundaries by name, each with ``compile: true`` or ``false``.

    Raises:
        SpecError: If the file cannot be read, or holds anything else.
    """
    try:
        import yaml  # noqa: PLC0415  (the extra `hotpath`: the package needs torch only)
    except ImportError:
        raise SpecError(
            f"{path}: reading YAML needs the package PyYAML",
            hint="python -m pip install 'ivhl[hotpath]'",
        ) from None
    try:
        data: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(
            f"{path}: {error.strerror}", hint=f"{BOUNDARIES} names a YAML file of boundaries"
        ) from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise SpecError(
            f"{path}: {' '.join(str(error).split())}", hint="write `name: {compile: true}`"
        ) from None
    if not isinstance(data, dict):
        raise SpecError(
            f"{path}: expected names of boundaries (got {type(data).__name__})",
            hint="write `name: {compile: true}`",
        )
    mistakes = []
    for name, rule in data.items():
        if not isinstance(name, str):
            mistakes.append(f"{name!r:.60}: expected a name")
        elif not isinstance(rule, dict) or set(rule) != {"compile"}:
            mistakes.append(f"{name}: expected `compile` alone (got {rule!r:.60})")
        elif not isinstance(rule["compile"], bool):
            mistakes.append(
                f"{name}.compile: expected true or false (got {rule['compile']!r:.60})"
            )
    if mistakes:
        raise SpecError(f"{path}: " + "; ".join(mistakes), hint="write `name: {compile: true}`")
    return {name: BoundaryRule(rule["compile"]) for name, rule in data.items()}
