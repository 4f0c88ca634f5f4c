"""The files in which Linux reports its state, and the kernel's lists of CPUs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

CPUS = "sys/devices/system/cpu"


@dataclass(frozen=True, slots=True)
class System:
    """Reads the files in which Linux reports its state.

    Attributes:
        root: Folder that holds ``proc`` and ``sys``; another one in tests.
    """

    root: Path = Path("/")

    def text(self, path: str) -> str | None:
        """Return the text of a file, stripped; ``None`` if it is missing or unreadable."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace").strip()
        except (OSError, ValueError):
            return None

    def number(self, path: str) -> int | None:
        """Return the integer in a file; ``None`` if it has none."""
        try:
            return int(self.text(path) or "")
        except ValueError:
            return None

    def table(self, path: str) -> dict[str, str]:
        """Return the lines ``name : value`` of a file by name; the first line of a name wins."""
        found: dict[str, str] = {}
        for line in (self.text(path) or "").splitlines():
            name, *value = re.split(r"[\s:]+", line.strip(), maxsplit=1)
            found.setdefault(name, "".join(value))
        return found

    def kilobytes(self, path: str, name: str) -> int | None:
        """Return a size from a file in ``/proc``, in bytes; ``None`` if the file lacks it."""
        words = self.table(path).get(name, "").split()
        return int(words[0]) * 1024 if words and words[0].isdecimal() else None

    def cgroup_files(self, controller: str, name: str) -> list[str]:
        """Return the files with this process's cgroup limits: its own group first, then parents.

        Version 2 has one tree, version 1 has a tree per controller. In a container, the group's
        path may be the host's and not exist here; the tree's root is then the container's group.

        Args:
            controller: Controller of version 1, e.g. ``memory``.
            name: Name of the file.
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
    """Parse a list in the kernel's format, e.g. ``0-2,7``; return nothing if it is malformed."""
    found: set[int] = set()
    for part in (text or "").split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part.strip())
        if match is None:
            return ()
        first = int(match[1])
        # Limited, so that a damaged list cannot fill the memory.
        last = min(int(match[2] or first), first + 2**16)
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def ranges_of(numbers: tuple[int, ...]) -> str:
    """Format numbers in the kernel's format: ``0-2,7``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts)
