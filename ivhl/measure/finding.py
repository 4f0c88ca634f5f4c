"""What is said of one thing of a machine, and how the system is read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from ivhl.records import Level

LEVELS: Final[tuple[Level, ...]] = get_args(Level)

CPUS = "sys/devices/system/cpu"
GIB = 2**30
GB = 10**9


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of an examination.

    Attributes:
        check: What was looked at, e.g. ``governor``.
        level: ``warning`` is what makes numbers noisier or a run slower, ``wrong`` what makes it
            fail or its numbers mean nothing.
        seen: What was seen. That of stability goes into records: no path, no name of a host.
        hint: What to do next; empty where all is well.
    """

    check: str
    level: Level
    seen: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class System:
    """The files in which Linux tells about itself.

    Attributes:
        root: Folder that holds ``proc`` and ``sys``; another one in tests.
    """

    root: Path = Path("/")

    def text(self, path: str) -> str | None:
        """Return what a file says, stripped; ``None`` where it is missing or cannot be read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace").strip()
        except (OSError, ValueError):
            return None

    def number(self, path: str) -> int | None:
        """Return the whole number in a file; ``None`` where there is none."""
        try:
            return int(self.text(path) or "")
        except ValueError:
            return None

    def table(self, path: str) -> dict[str, str]:
        """Return the lines ``name : value`` of a file by their first word, the first of each."""
        found: dict[str, str] = {}
        for line in (self.text(path) or "").splitlines():
            name, *value = re.split(r"[\s:]+", line.strip(), maxsplit=1)
            found.setdefault(name, "".join(value))
        return found

    def kilobytes(self, path: str, name: str) -> int | None:
        """Return a size of ``/proc``, in bytes; ``None`` where it is not told."""
        words = self.table(path).get(name, "").split()
        return int(words[0]) * 1024 if words and words[0].isdecimal() else None

    def cgroup_files(self, controller: str, name: str) -> list[str]:
        """Return where the limits of this process are: its own group first, then those above.

        Version 2 has one tree for all, version 1 one for each controller. In a container the
        group's path may be the host's and lead nowhere; the root is then the container's own.

        Args:
            controller: Of version 1, e.g. ``memory``.
            name: Of the file.
        """
        found = []
        for line in (self.text("proc/self/cgroup") or "").splitlines():
            _, _, rest = line.partition(":")
            controllers, _, group = rest.partition(":")
            if controllers and controller not in controllers.split(","):
                continue
            mount = Path("sys/fs/cgroup", controller if controllers else "")
            parts = [part for part in group.split("/") if part not in {"", ".."}]
            folders = [mount.joinpath(*parts[:n]) for n in range(len(parts), -1, -1)]
            found += [str(folder / name) for folder in folders]
        return found


def numbers_of(text: str | None) -> tuple[int, ...]:
    """Return the numbers of a list as the kernel writes it, e.g. ``0-2,7``; none if it is none."""
    found: set[int] = set()
    for part in (text or "").split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part.strip())
        if match is None:
            return ()
        first = int(match[1])
        # A list that is damaged must not fill the memory.
        last = min(int(match[2] or first), first + 2**16)
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def ranges_of(numbers: tuple[int, ...]) -> str:
    """Return numbers as the kernel writes them: ``0-2,7``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts)
