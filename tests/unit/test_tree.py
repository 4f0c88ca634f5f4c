"""One name for each thing: no class of the tree has the name of another one."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Each workload declares what its sizes hold.
SHARED = {"Size"}


def test_no_class_name_names_two_things() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for folder in ("ivhl", "benchmarks", "studies"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(str(path.relative_to(ROOT)))
    twice = {name: paths for name, paths in found.items() if len(paths) > 1 and name not in SHARED}
    assert twice == {}
