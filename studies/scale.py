"""Make a project with a long history out of the committed records; measure views and site on it.

``python -m studies.scale DIR --records 65000`` prints CPU seconds of each step, of this process or
of the command, and the seconds that it took. docs/regressions.md has figures for 998,400 records.

``python -m studies.scale DIR --commits 500`` prints how large the files of the site are where cases
have so many commits: of each kind the largest. Two cases have them in every cell, all others the
newest two: so no file is smaller than if all had them, and there are fewer files.

``python -m studies.scale --ratios`` prints the CPU seconds of commands on the committed records over
those of ``python -c "import typer"``: pairs in turn, in one run, with all caches on disk warm.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ivhl.tracker.store.index import index_file, open_index
from ivhl.workload import load_workloads

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[1]
CELLS: Final = tuple(
    (f"3.{minor}", f"2.{torch}.0") for minor in (12, 13) for torch in range(3, 16)
)
CASES: Final = 80
# Cases that have every commit of a site that is measured, and commits that every case has.
_LONG_CASES, _OF_ALL_CASES = 2, 2
COMMANDS: Final = (
    ("compat",),
    ("regressions",),
    ("compare", "2.6.0", "2.15.0"),
    ("compare", "3.12", "3.13"),
    ("gate", "--base", "HEAD~2", "--commit", "HEAD~1"),
)
WORSE: Final = 7  # exit code of the gate: one of thousands of cases may seem slower
PUBLISH: Final = ("publish", "--no-asv")
RATIOS: Final = (("--help",), ("compat",), ("regressions",))
_PAIRS: Final = 7


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m studies.scale")
    parser.add_argument("folder", type=Path, nargs="?", help="an empty folder for the project")
    parser.add_argument("--records", type=int, default=65_000)
    parser.add_argument("--commits", type=int, help="measure the files of the site instead")
    parser.add_argument("--ratios", action="store_true", help="compare commands with an import")
    options = parser.parse_args()
    if options.ratios:
        print_ratios()
        return
    if options.folder is None:
        parser.error("the following arguments are required: folder")
    folder: Path = options.folder.resolve()
    cases = [*map(_template, _cases())]
    if options.commits:
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        measure_site(folder, options.commits, cases)
        return
    per_commit = len(CELLS) * len(cases)
    n_commits = options.records // per_commit
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    commits = make_project(folder, n_commits + 2)
    results = folder / "results"
    for n in range(n_commits):
        write_commit(results, n, commits[n], cases)
    print(f"{n_commits * per_commit} records of {len(cases)} cases in {len(CELLS)} cells")
    _run(folder, PUBLISH, "first, with the index")
    shutil.rmtree(folder / "site")
    index_file(results).unlink()
    with _seconds("first index"):
        open_index(results)
    write_commit(results, n_commits, commits[n_commits], cases)
    with _seconds(f"one commit more, {per_commit} records"):
        open_index(results)
    print(f"size of the index: {index_file(results).stat().st_size / 1e6:.0f} MB")
    for words in (*COMMANDS, PUBLISH):
        for how in ("first", "again"):
            _run(folder, words, how)
    write_commit(results, n_commits + 1, commits[n_commits + 1], cases)
    _run(folder, PUBLISH, f"one commit more, {per_commit} records")


def print_ratios() -> None:
    """Print CPU seconds of commands on the committed records over those of an import of typer."""
    least = [sys.executable, "-c", "import typer"]
    environment = _with_bytecode()  # Python writes it on the first call, and ivhl its index
    for words in RATIOS:
        command = [sys.executable, "-m", "ivhl", *words]
        pairs = [
            [_cpu_seconds(c, environment) for c in (command, least)] for _ in range(_PAIRS + 1)
        ]
        ratio, seconds = (
            median(values) for values in zip(*((a / b, a) for a, b in pairs[1:]), strict=True)
        )
        print(f"ivhl {' '.join(words)}: {ratio:.1f} times import typer; {seconds:.2f} CPU s")


def _with_bytecode() -> dict[str, str]:
    """Return an environment in which Python keeps bytecode, as where ivhl is installed."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def _cpu_seconds(command: list[str], environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_site(folder: Path, n_commits: int, cases: list[Template]) -> None:
    """Publish a history of so many commits; print the largest file of each kind."""
    for number, commit in enumerate(make_project(folder, n_commits)):
        newest = number >= n_commits - _OF_ALL_CASES
        write_commit(folder / "results", number, commit, cases if newest else cases[:_LONG_CASES])
    _run(folder, PUBLISH, "first")
    files: dict[str, list[Path]] = defaultdict(list)
    for path in (folder / "site").rglob("[!.]*.*"):
        first, _, rest = path.relative_to(folder / "site").as_posix().partition("/")
        files[f"{first}/side" if rest.startswith("side/") else first].append(path)
    print("kind: files; of the largest: bytes, with its scripts and styles, elements, name")
    for kind, paths in sorted(files.items()):
        largest = max(paths, key=lambda path: path.stat().st_size)
        text = largest.read_text(encoding="utf-8") if largest.suffix == ".html" else ""
        needed = re.findall(r'"((?:\.\./)*[^"?]+)\?\w+"', text)
        size = largest.stat().st_size
        whole = size + sum((largest.parent / name).stat().st_size for name in needed)
        elements = len(re.findall("<[a-z]", text))
        print(f"{kind}: {len(paths)}; {size}, {whole}, {elements}, {largest.name}")


def make_project(folder: Path, n_commits: int) -> list[str]:
    """Write a project without results; return its commits, oldest first.

    Each commit changes one file. Series along commits need them: without a place a record is in
    none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("pyproject.toml", "asv.conf.json"):
        shutil.copy(ROOT / name, folder)
    # No known failures: those of other cells match nothing here, which the gate refuses.
    ignored = shutil.ignore_patterns("__pycache__", "expectations.toml")
    for name in ("envs", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    stream = "".join(
        f"commit refs/heads/main\ncommitter scale <scale@example.org> {n} +0000\ndata 0\n"
        f"M 644 inline changed\ndata {len(str(n))}\n{n}\n\n"
        for n in range(n_commits)
    )
    git = ["git", "-C", str(folder)]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    subprocess.run([*git, "fast-import", "--quiet"], input=stream.encode(), check=True)
    listed = subprocess.run(
        [*git, "rev-list", "--reverse", "main"], check=True, capture_output=True, text=True
    )
    return listed.stdout.split()


def write_commit(results: Path, number: int, commit: str, cases: list[Template]) -> None:
    """Write the records of one commit in every cell; speedups vary by 3 %."""
    draw = random.Random(number)  # noqa: S311  (noise)
    day = 86_400 * number
    at = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(1_700_000_000 + day))
    for python, torch in CELLS:
        cell = f"py{python}-torch{torch}"
        path = results / "scale" / "records" / f"{commit[:8]}-{cell}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = []
        for text, speedup in cases:
            record: dict[str, Any] = {"commit": commit, "recorded_at": at}
            record["sources"] = f"{number:064x}"
            record["cell"] = {
                "id": cell, "python": python, "torch": torch, "lock_sha256": f"{0:064x}"
            }  # fmt: skip
            if speedup:
                by = draw.gauss(1, 0.03)
                moved = {name: speedup[name] * by for name in ("value", "low", "high")}
                record["speedup"] = speedup | moved
            lines.append(f"{json.dumps(record, separators=(',', ':'))[:-1]},{text}\n")
        path.write_text("".join(lines), encoding="utf-8")


class Template(NamedTuple):
    """A record: what of it is equal in all commits and cells, as text, and its speedup."""

    text: str
    speedup: dict[str, float] | None


def _template(case: dict[str, Any]) -> Template:
    varied = {"commit", "recorded_at", "sources", "cell", "speedup"}
    same = {name: value for name, value in case.items() if name not in varied}
    if case["speedup"] is None:
        same["speedup"] = None
    same["machine"] = case["machine"] | {"name": "scale"}
    text = json.dumps(same, sort_keys=True, separators=(",", ":"))
    return Template(text[1:], case["speedup"])


def _cases() -> list[dict[str, Any]]:
    """Return a committed record of each of ``CASES`` cases that the project has."""
    declared = {
        (workload.name, size, variant.name): workload.version
        for workload in load_workloads("benchmarks")
        for size in workload.sizes
        for variant in workload.variants
        if "cpu" in variant.devices
    }
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for path in sorted((ROOT / "results").glob("*/records/*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            case = record["workload"], record["size"], record["variant"]
            if case in declared:
                found.setdefault(case, record | {"workload_version": declared[case]})
    return [found[case] for case in sorted(found)][:CASES]


def _run(folder: Path, words: tuple[str, ...], how: str) -> None:
    environment = _with_bytecode() | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "ivhl", *words]
    with _seconds(f"ivhl {' '.join(words)}, {how}", children=True):
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=False
        )
    if done.returncode not in (0, WORSE):
        raise SystemExit(f"ivhl {words[0]} ended with {done.returncode}")


@contextmanager
def _seconds(what: str, *, children: bool = False) -> Iterator[None]:
    who = resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF
    before, began = resource.getrusage(who), time.perf_counter()
    yield
    wall = time.perf_counter() - began
    after = resource.getrusage(who)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    memory = after.ru_maxrss / 2**10  # of all children so far, that of the largest
    load = os.getloadavg()[0]
    took = f"{seconds:.2f} CPU s, {wall:.2f} s; {memory:.0f} MiB; load {load:.1f}"
    print(f"{what}: {took}", flush=True)


if __name__ == "__main__":
    main()
