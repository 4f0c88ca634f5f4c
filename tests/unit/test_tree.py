"""One name for each thing, and the docs name what there is."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "adr").glob("*.md")),
]
# Each workload declares what its sizes hold. ``Mode`` is torch.compile's; ``ivhl.compile`` has one
# more than workloads.
SHARED = {"Size", "Mode"}
# Files of other projects that pages show.
FOREIGN = re.compile(
    r"(softplus|torch|results|site)/|benchmarks/(SUBJECT|(calls|ops|model_calls|block)\.)"
)
ENDINGS = {"py", "toml", "json", "jsonl", "md", "yml", "html", "txt", "zip", "diff", "lock"}


def type_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names of a module's classes, and of its types such as ``Tier = Literal[...]``."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Literal["):
            yield ast.unparse(node.targets[0])


def test_no_name_of_a_class_or_type_names_two_things() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for folder in ("ivhl", "benchmarks", "studies"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for name in type_names(ast.parse(path.read_text(encoding="utf-8"))):
                found[name].append(str(path.relative_to(ROOT)))
    twice = {name: paths for name, paths in found.items() if len(paths) > 1 and name not in SHARED}
    assert twice == {}


def test_the_page_of_the_tree_lists_the_rooms_in_the_order_of_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (layers, tracker, *_) = contracts["tool"]["importlinter"]["contracts"]
    rooms = [room.strip() for layer in layers["layers"] for room in layer.split("|")]
    place = rooms.index("tracker")
    rooms[place:place] = [f"tracker/{room}" for room in tracker["layers"]]
    modules = {"__main__", "tracker/terminal", "tracker/wording"}
    page = (ROOT / "docs" / "tree.md").read_text(encoding="utf-8")
    table = page.split("## Rooms of `ivhl/`")[1].split("\n\n`tracker` and")[0]
    listed = [
        room
        for line in table.splitlines()
        if line.startswith("| `")
        for room in re.findall(r"`([\w/.]+)`", line.split("|")[1])
    ]
    files = {room for room in rooms if (ROOT / "ivhl" / f"{room}.py").is_file()}
    assert listed == [
        f"{room}.py" if room in files else room for room in rooms if room not in modules
    ]


def written(page: Path) -> list[str]:
    """Return what a page has in backticks, without its blocks of code and made tables."""
    text = re.sub(r"(?ms)^```.*?^```|^<!--made by:.*?^<!--end-->", "", page.read_text("utf-8"))
    return re.findall(r"`([^`\n]+)`", text.partition("## Before and after")[0])


def files_of(module: str) -> list[Path]:
    """Return the files that may be meant by ``measure.runner``, ``ivhl.workload`` or ``runner``."""
    where = module.removeprefix("ivhl.").replace(".", "/")
    found = [ROOT / "ivhl" / f"{where}.py", ROOT / "ivhl" / where / "__init__.py"]
    return [path for path in found if path.is_file()] or list((ROOT / "ivhl").rglob(f"{where}.py"))


def is_there(module: str, name: str) -> bool:
    """Return whether a module binds a name, or is a package that has it or such a module."""
    return any(
        (path.name == "__init__.py" and any(path.parent.glob(f"{name}*")))
        or re.search(
            rf"(?m)^(?:class |def |    (?:def |\")?)?{name}\b", path.read_text(encoding="utf-8")
        )
        for path in files_of(module)
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_and_name_of_the_code_that_a_page_mentions_is_there(page: Path) -> None:
    missing = []
    for text in written(page):
        if re.fullmatch(r"[\w-]+/[\w./-]+\.(py|json|toml)", text):
            places = (ROOT / text, ROOT / "ivhl" / text)
            there = any(p.exists() for p in places) or FOREIGN.match(text) is not None
        elif named := re.fullmatch(r"((?:\w+\.)*\w+)\.(\w+)", text):
            # Workloads are named after rooms, and fields of records after what compiles.
            kept = (
                named[2] in ENDINGS
                or re.match(r"(ops|mlff|rollout|surgical|hotpath|compile|memory)\.", text)
                is not None
            )
            there = kept or not files_of(named[1]) or is_there(named[1], named[2])
        else:
            continue
        if not there:
            missing.append(text)
    assert missing == []


def test_every_end_to_end_test_is_in_a_session() -> None:
    """The tests of the reports were written, and no session ran them."""
    sessions = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    names = {
        path.stem.removeprefix("test_") for path in (ROOT / "tests" / "e2e").glob("test_*.py")
    }
    assert {
        n for n in names if f'"{n}"' not in sessions and f"test_{n}.py" not in sessions
    } == set()
