"""Collect what ``compat``, ``regressions``, ``course`` and the site's data say of every record.

``facts.json.xz`` holds what commit 838f273 said of the records of 28 November 2026. It is made again
by ``python tests/contract/facts.py 838f273``.
"""

from __future__ import annotations

import json
import lzma
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
STORED: Final = Path(__file__).with_name("facts.json.xz")
# Later records are not in the stored facts.
UNTIL: Final = "2026-11-28T09:33:00"
_DIGITS: Final = 5
_HASH: Final = 8
# Of the runs that the page *Compare* loads.
_SIDE: Final = (
    "status", "speedup", "eager", "compiled", "cold", "memory", "breaks", "recompiles", "sources",
)  # fmt: skip

# Group, such as ``compat``, to what a fact is about, to the fact.
Facts = dict[str, dict[str, list[Any]]]


def facts_of(project: Path, python_path: str = "") -> Facts:
    """Return the facts that the commands print of the records of a project.

    Args:
        project: From ``make_project``.
        python_path: Folder of the ``ivhl`` that is asked; by default the one that is installed.
    """
    compat = json.loads(_ivhl(project, python_path, "compat", "--json"))
    regressions = json.loads(_ivhl(project, python_path, "regressions", "--all", "--json"))
    course = json.loads(_ivhl(project, python_path, "course", "--all", "--json"))
    _ivhl(project, python_path, "publish", "--no-asv", "--output", "site")
    return {
        "compat": dict(_compat(_of(compat, "rows"))),
        "regressions": dict(_regressions(_of(regressions, "incidents"))),
        "course": dict(_course(_of(course, "cases"))),
        "site": dict(_site(project / "site" / "data")),
    }


def make_project(folder: Path) -> None:
    """Copy what commands read of this project: history, matrix, benchmarks, records to ``UNTIL``."""
    _clone(folder)
    for name in ("benchmarks", "envs"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copyfile(ROOT / "pyproject.toml", folder / "pyproject.toml")
    for path in sorted((ROOT / "results").glob("*/records/*.jsonl")):
        kept = [
            line
            for line in path.read_text(encoding="utf-8").splitlines(keepends=True)
            if json.loads(line)["recorded_at"] < UNTIL
        ]
        if kept:
            target = folder / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("".join(kept), encoding="utf-8")


def _clone(folder: Path) -> None:
    """Clone the history of this project, without any file."""
    clone = ["git", "clone", "--quiet", "--shared", "--no-checkout", os.fspath(ROOT)]
    subprocess.run([*clone, os.fspath(folder)], check=True)


def stored_facts() -> Facts:
    """Return the facts as they were stored."""
    return json.loads(lzma.decompress(STORED.read_bytes()))  # type: ignore[no-any-return]


def _ivhl(project: Path, python_path: str, *arguments: str) -> str:
    environment = os.environ | {"XDG_CACHE_HOME": os.fspath(project / ".cache")}
    if python_path:
        environment["PYTHONPATH"] = python_path
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "ivhl", *arguments],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(f"ivhl {' '.join(arguments)}: {ran.stderr}")
    return ran.stdout


def _of(printed: Any, name: str) -> list[dict[str, Any]]:  # noqa: ANN401  (JSON)
    """Return a list that a command prints: by itself, as at first, or in an object with a schema."""
    return printed if isinstance(printed, list) else printed[name]


def _compat(rows: list[dict[str, Any]]) -> Iterator[tuple[str, list[Any]]]:
    for row in rows:
        if row["commit"] is not None:
            facts = [
                row["status"],
                row["failure_class"],
                *(_short(row[name]) for name in ("speedup", "within_low", "within_high")),
                *(_short(row[name]) for name in ("speedup_low", "speedup_high")),
                row["reference"],
                row["commit"][:_HASH],
            ]
            yield " ".join((row["machine"], row["device"], row["cell"], _case(row))), facts


def _regressions(incidents: list[dict[str, Any]]) -> Iterator[tuple[str, list[Any]]]:
    for incident in incidents:
        ends = [incident[name][:_HASH] for name in ("before", "place")]
        for change in incident["changes"]:
            place = [change[n] for n in ("machine", "device", "python", "torch") if change[n]]
            about = " ".join([change["along"], "->".join(ends), *place, _case(change)])
            yield about, [change["kind"], _short(change["effect"]), change["state"]]


def _course(cases: list[dict[str, Any]]) -> Iterator[tuple[str, list[Any]]]:
    for case in cases:
        about = " ".join((case["machine"], case["device"], case["dtype"], _case(case)))
        for cell in case["cells"]:
            values = [_short(cell.get(name)) for name in ("speedup", "eager", "compiled")]
            facts = [cell["failure"], cell["disturbed"], *values, cell["commit"][:_HASH]]
            yield f"{about} py{cell['python']}-torch{cell['torch']}", facts
        for step in case["steps"]:
            where = f"{step['along']} {step['before']}->{step['place']}"
            sides = [
                [side, *(_short(found[n]) for n in ("ratio", "low", "high")), found["moved"]]
                for side, found in sorted(step["sides"].items())
            ]
            yield f"{about} {where} {','.join(step['cells'])}", sides


def _site(data: Path) -> Iterator[tuple[str, list[Any]]]:
    """Yield what the pages load: every run of each commit, and the details of the newest ones."""
    for path in sorted(data.glob("*/*/*.js")):
        content = _given(path)
        about = path.relative_to(data).with_suffix("").as_posix()
        if path.is_relative_to(data / "side"):
            continue
        errors = [
            [error[name] for name in ("output", "eager", "compiled", "limit", "verdict")]
            for error in content["errors"]
        ]
        counted = {name: sum(n for n, _ in found) for name, found in content["counted"].items()}
        yield about, [content["status"], content["text"], errors, counted]
    for path in sorted((data / "side").glob("*/*/*.js")):
        content = _given(path)
        at = [content["fields"].index(name) for name in _SIDE]
        about = path.relative_to(data).with_suffix("").as_posix()
        for case, runs in content["cases"].items():
            yield f"{about} {case}", [[run[i] for i in at] for run in runs]


def _given(path: Path) -> dict[str, Any]:
    """Return the data of a script ``site.give(PATH,DATA);``."""
    text = path.read_text(encoding="utf-8")
    found, _ = json.JSONDecoder().raw_decode(text, text.index(",") + 1)
    return found  # type: ignore[no-any-return]


def _case(found: dict[str, Any]) -> str:
    """Return the name of a case, with what ``regressions`` and ``course`` say beside it."""
    version = f" version {found['workload_version']}" if "workload_version" in found else ""
    existing = " existing" if found["existing"] else ""
    return f"{found['workload']}/{found['size']}/{found['variant']}{version}{existing}"


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")


def _main(commit: str) -> None:
    with TemporaryDirectory() as scratch:
        code, project = Path(scratch, "code"), Path(scratch, "project")
        _clone(code)
        subprocess.run(["git", "-C", code, "checkout", "--quiet", commit], check=True)
        make_project(project)
        facts = facts_of(project, os.fspath(code))
    text = json.dumps(facts, separators=(",", ":"), sort_keys=True)
    STORED.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{STORED}: {sum(map(len, facts.values()))} facts")


if __name__ == "__main__":
    _main(sys.argv[1])
