"""``ivhl bench`` and ``ivhl try`` give a case one class, whatever is wrong with it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ivhl.bench.trial import _result_of
from ivhl.machine.identity import this_machine
from ivhl.measure.effort import Effort
from ivhl.measure.job import Job
from ivhl.measure.launcher import case_environment
from ivhl.measure.run import Run
from ivhl.measure.runner import run_cases
from ivhl.records.record import Cell
from ivhl.workload import load_workloads, select_cases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.workload import Case

pytest.importorskip("torch", reason="cases need torch")
ROOT = Path(__file__).parents[2]
# Those that end the machine's patience or memory are left out.
CASES = {
    "faulty": [
        "good.first", "bad.import", "bad.inputs", "bad.reference", "bad.eager", "bad.eager_wrong",
        "bad.eager_mutates", "bad.graph_break", "bad.skipped", "bad.mutates", "bad.threads",
        "bad.source_wrong", "bad.wrong", "bad.wrong_shape", "bad.nan", "bad.recompiles",
        "good.recompiles_silently", "bad.guards_on_data", "bad.segfault", "good.other_default",
        "bad.exit", "bad.sys_exit", "bad.import_exit", "bad.import_sys_exit", "bad.killed",
    ],
    "models": [
        "good.vmapped", "good.curvature", "good.selected", "good.triangle", "good.counted_up",
        "bad.large_steps", "bad.drops_fewer", "bad.needs_what_is_missing",
        "good.masked", "good.variational",
        "good.dropped_channels", "good.partly_skipped", "bad.gradient", "bad.attribute",
    ],
    "cheats": [
        "keeps.by_version", "keeps.half", "keeps.only_seeds", "keeps.buffer", "keeps.fixed",
        "elsewhere.lazy", "elsewhere.lazy_input", "elsewhere.unwaited", "elsewhere.prepare",
        "elsewhere.finish", "changes.input", "changes.threads", "changes.source_grad",
        "wrong.source", "wrong.element", "wrong.later", "wrong.cancels", "compiles.counts",
        "compiles.breaks", "honest.view", "honest.random", "honest.two_ulp",
    ],
}  # fmt: skip


def make_run(module: str, folder: Path) -> Run:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Run(
        project=module,
        commit="0" * 40,
        workloads=f"tests.e2e.{module}:WORKLOADS",
        cell=Cell(id=f"py{version}-torch0.0", python=version, torch="0.0", lock_sha256=None),
        machine=this_machine("test"),
        results=str(folder / "results"),
        scratch=str(folder / "scratch"),
        repeat="repeat",
        effort=Effort(deadline_s=120, memory_limit=4 << 30),
    )


def class_by_try(run: Run, case: Case, here: Path) -> str | None:
    """Return the class that the process of ``ivhl try`` prints; ``None`` for a speedup."""
    here.mkdir()
    job = Job(
        project=run.project, workloads=run.workloads, workload=case.workload.name, size=case.size,
        variant=case.variant.name, effort=run.effort, stage="time", process=1,
        journal=str(here / "journal.jsonl"), references=str(here / "references.pt"),
    )  # fmt: skip
    environment = case_environment(run, here) | {
        "PYTHONPATH": str(ROOT),
        "TORCHINDUCTOR_CACHE_DIR": str(here.parent / "cache"),
    }
    command = [sys.executable, "-m", "ivhl.measure.rehearsal", json.dumps(asdict(job))]
    done = subprocess.run(
        command, cwd=here, env=environment, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL, timeout=240,
    )  # fmt: skip
    code, ending = _result_of(done.returncode, Path(job.journal))
    if code == 0:
        return None
    said = re.findall(r"^(\w+) in phase ", f"{done.stdout}\n{ending}", re.MULTILINE)
    assert said, done.stdout + done.stderr
    return str(said[-1])


def classes(module: str, names: Sequence[str], folder: Path) -> dict[str, list[str | None]]:
    """Return the class of each case by ``ivhl bench`` and by ``ivhl try``."""
    run = make_run(module, folder)
    cases = select_cases(load_workloads(run.workloads), names=tuple(names))
    run_cases(run, cases)
    found: dict[str, list[str | None]] = {}
    for line in run.record_file.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        failure = record["failure"]
        found[record["workload"]] = [failure["failure_class"] if failure else None]
    alone = replace(run, scratch=str(folder / "try"))
    Path(alone.scratch).mkdir()
    for number, case in enumerate(cases):
        tried = class_by_try(alone, case, Path(alone.scratch) / str(number))
        found[case.workload.name].append(tried)
    return found


@pytest.mark.full
@pytest.mark.parametrize("module", CASES)
def test_bench_and_try_give_one_class(module: str, tmp_path: Path) -> None:
    found = classes(module, CASES[module], tmp_path)
    assert set(found) == set(CASES[module])
    assert {name: both for name, both in found.items() if len(set(both)) > 1} == {}


def test_at_least_sixty_cases_are_compared() -> None:
    assert sum(map(len, CASES.values())) >= 60
