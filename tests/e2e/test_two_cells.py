"""End to end, as a new user runs it: a clone, two real cells, records, site, history."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ivhl.matrix.locks import SUMS
from ivhl.measure.alone import only_run_here, only_writer
from ivhl.workload import load_workloads, select_cases

if TYPE_CHECKING:
    from collections.abc import Callable

WORKLOADS = load_workloads("benchmarks")
ROOT = Path(__file__).parents[2]
WORKLOAD = "ops.field_superposition"
VARIANTS = ("naive-compiled", "real-compiled")
CASES = select_cases(WORKLOADS, names=[WORKLOAD], variants=VARIANTS)
# One process times each case: how sure a time is, is not tested here.
ONCE = ("--processes", "1", *(word for name in VARIANTS for word in ("--variant", name)))


def run(*words: str, cwd: Path, expect: int = 0) -> str:
    """Run a command and return what it printed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("NOX", "IVHL", "UV_"))}
    environment |= {"COLUMNS": "100", "PYTHONPATH": str(cwd)}
    done = subprocess.run(
        words,
        cwd=cwd,
        env=environment,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == expect, done.stdout
    return done.stdout


def ivhl(*words: str, cwd: Path, expect: int = 0) -> str:
    """Run ``ivhl`` of the clone."""
    return run(sys.executable, "-m", "ivhl", *words, cwd=cwd, expect=expect)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clone of the working tree as it is, without any results."""
    folder = tmp_path_factory.mktemp("clone") / "ivhl"
    run("git", "clone", "--quiet", str(ROOT), str(folder), cwd=ROOT)
    run("git", "rm", "-r", "--quiet", "--ignore-unmatch", "results", cwd=folder)
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.invalid")
    run("git", *identity, "commit", "--quiet", "--allow-empty", "-m", "No results", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def measured(clone: Path) -> dict[str, str]:
    """Return what both Pythons' sessions printed."""
    said = {}
    for python in ("3.12", "3.13"):
        said[python] = run(
            sys.executable, "-m", "nox", "-s", f"bench-{python}", "--",
            "--torch", "2.5.1", "--workload", WORKLOAD, "--machine", "here", *ONCE,
            cwd=clone,
        )  # fmt: skip
    return said


@pytest.fixture(scope="module")
def rows(clone: Path, measured: dict[str, str]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the rows of ``ivhl compat`` by Python and variant."""
    assert measured
    found = json.loads(
        ivhl("compat", "--json", "--torch", "2.5.1", "--workload", WORKLOAD, cwd=clone)
    )["rows"]
    return {(row["python"], row["variant"]): row for row in found}


def test_python_312_compiles_with_pytorch_251(
    rows: dict[tuple[str, str], dict[str, Any]],
) -> None:
    row = rows["3.12", "real-compiled"]
    assert row["status"] == "works"
    assert row["failure_class"] is None
    assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"]


def test_pytorch_251_refuses_python_313_with_its_message(
    rows: dict[tuple[str, str], dict[str, Any]],
) -> None:
    for variant in ("naive-compiled", "real-compiled"):
        row = rows["3.13", variant]
        assert row["status"] == "unsupported"
        assert row["failure_class"] == "support_gate"
        assert "Dynamo is not supported on Python 3.13+" in row["message"]
        assert row["speedup"] is None


def test_the_refused_cell_keeps_its_eager_times(clone: Path, measured: dict[str, str]) -> None:
    assert measured
    records = json.loads(ivhl("results", "--json", "--python", "3.13", cwd=clone))["records"]
    assert len(records) == len(CASES)
    assert all(len(record["eager"]["samples_s"]) >= 4 for record in records)
    assert all(record["compiled"] is None for record in records)


def test_the_run_prints_the_table_and_the_path_of_the_site(
    clone: Path, measured: dict[str, str]
) -> None:
    assert "Dynamo is not supported on Python 3.13+" in measured["3.13"]
    assert "support_gate" in measured["3.13"]
    assert "x [" in measured["3.12"]
    site = clone / "site" / "index.html"
    assert str(site) in measured["3.13"]
    details = (path.read_text() for path in (clone / "site" / "data").rglob("*.js"))
    assert any("Dynamo is not supported on Python 3.13+" in text for text in details)


def test_asvs_graphs_show_the_failure(clone: Path, measured: dict[str, str]) -> None:
    assert measured
    graphs = list((clone / "site" / "asv" / "graphs").rglob("*track_failed.json"))
    values = {
        python: [json.loads(p.read_text(encoding="utf-8")) for p in graphs if python in str(p)]
        for python in ("python-3.12", "python-3.13")
    }
    assert any(1 in point[1] for graph in values["python-3.13"] for point in graph)
    assert not any(1 in point[1] for graph in values["python-3.12"] for point in graph)


def test_a_second_run_measures_nothing(clone: Path, measured: dict[str, str]) -> None:
    assert measured
    before = {p: p.read_bytes() for p in (clone / "results").rglob("*.jsonl")}
    said = ivhl(
        "bench", "--python", "3.13", "--torch", "2.5.1", "--workload", WORKLOAD,
        "--machine", "here", "--no-publish", *ONCE, cwd=clone,
    )  # fmt: skip
    assert said.count("has a record already") == len(CASES)
    assert before == {p: p.read_bytes() for p in (clone / "results").rglob("*.jsonl")}


def test_a_release_without_a_wheel_is_a_result(clone: Path, measured: dict[str, str]) -> None:
    assert measured
    said = ivhl(
        "bench", "--python", "3.13", "--torch", "2.4.1", "--workload", WORKLOAD,
        "--machine", "here", "--no-publish", cwd=clone,
    )  # fmt: skip
    assert "unavailable" in said
    found = json.loads(
        ivhl("compat", "--json", "--torch", "2.4.1", "--workload", WORKLOAD, cwd=clone)
    )["rows"]
    here = {(row["python"], row["status"]) for row in found if row["machine"] == "here"}
    # 3.12 could run it but has not. That 3.14 cannot, its lock says, without a run.
    assert here == {("3.12", "not_run"), ("3.13", "unavailable"), ("3.14", "unavailable")}


def test_a_lock_with_a_wrong_hash_fails_only_its_own_cell(
    clone: Path, measured: dict[str, str]
) -> None:
    assert measured
    lock = clone / "envs" / "locks" / "py3.13-torch2.6.0.txt"
    text = lock.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    false, inside = [], False
    for line in lines:
        inside = line.startswith("mpmath==") or (inside and line.startswith(" "))
        false.append(re.sub("sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, line) if inside else line)
    wrong = "".join(false)
    assert wrong != text
    bench = (
        "bench", "--python", "3.13", "--torch", "2.6.0", "--torch", "2.5.1",
        "--workload", WORKLOAD, "--machine", "faulty", "--no-publish", "--processes", "0",
        "--variant", "real-compiled",
    )  # fmt: skip
    sums = lock.with_name(SUMS)
    known = sums.read_text(encoding="utf-8")
    was, now = (hashlib.sha256(one.encode()).hexdigest() for one in (text, wrong))
    lock.write_text(wrong, encoding="utf-8")
    try:
        ivhl(*bench, cwd=clone, expect=3)  # edited since it was made
        # Made so: what the registry has is another file.
        sums.write_text(known.replace(was, now), encoding="utf-8")
        said = ivhl(*bench, cwd=clone)
    finally:
        lock.write_text(text, encoding="utf-8")
        sums.write_text(known, encoding="utf-8")
    records = json.loads(ivhl("results", "--json", "--machine", "faulty", cwd=clone))["records"]
    classes = {(r["cell"]["torch"], r["failure"]["failure_class"]) for r in records}
    assert classes == {("2.6.0", "environment"), ("2.5.1", "support_gate")}
    message = next(r["failure"]["message"] for r in records if r["cell"]["torch"] == "2.6.0")
    assert "mpmath" in message
    assert "environment" in said


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_somebody_ends_leaves_no_process_and_no_lock(
    clone: Path, measured: dict[str, str], how: signal.Signals
) -> None:
    assert measured
    command = [
        sys.executable, "-m", "ivhl", "bench", "--python", "3.12", "--torch", "2.5.1",
        "--workload", WORKLOAD, "--machine", "ended", "--no-publish",
    ]  # fmt: skip
    with subprocess.Popen(
        command,
        cwd=clone,
        env=os.environ | {"PYTHONPATH": str(clone)},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        wait_until(lambda: any("ivhl.measure.nursery" in line for line in running(clone)))
        process.send_signal(how)
        assert process.wait(60) == (143 if how == signal.SIGTERM else -signal.SIGKILL)
    wait_until(lambda: not running(clone))
    with only_run_here(clone), only_writer(clone / "results"):
        pass


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--python", "3.12", "--workload", "ops.feld"], 2, "or ops.field_super"),
        (["--python", "3.12", "--torch", "2.5.7"], 2, "did you mean 2.5.1"),
        (["--python", "3.11"], 2, "3.12"),
        (["--python", "3.12", "--size", "medum"], 2, "did you mean medium"),
        (["--python", "3.12", "--commit", "nothing"], 2, "no commit 'nothing'"),
    ],
)
def test_a_wrong_argument_gives_one_error(
    clone: Path, words: list[str], code: int, says: str
) -> None:
    said = ivhl("bench", *words, cwd=clone, expect=code)
    assert says in said
    assert "next:" in said
    assert "Traceback" not in said


GATE = (
    "gate", "--base", "HEAD~1", "--confirm", "--workload", WORKLOAD, "--python", "3.12", "--torch",
    "2.5.1", "--rounds", "1", "--results", "turns", "--machine", "here", "--json",
    "--allow-missing",
)  # fmt: skip


def confirmed(text: str) -> list[dict[str, Any]]:
    """Return the cases that the gate measured again, from all that it printed."""
    verdict: dict[str, Any] = json.loads(text[text.index('{\n "schema"') :])
    return list(verdict["confirmed"])


@pytest.mark.full
def test_the_gate_interleaves_two_commits_in_one_cell(clone: Path) -> None:
    text = ivhl(*GATE, "--measure", cwd=clone)
    (outcome,) = confirmed(text)
    # Noise may say anything of the times, but both commits were measured.
    assert outcome["case"].startswith(f"{WORKLOAD}/medium/")
    assert outcome["rounds"] == 1
    assert "less what both commits have" in text
    assert "py3.12-torch2.5.1: expected: 1 run of 1 case, of " in text
    assert "after round 1, settled: " in text
    records = [
        json.loads(line)
        for path in sorted((clone / "turns" / "here" / "records").glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    head, base = (run("git", "rev-parse", rev, cwd=clone).strip() for rev in ("HEAD", "HEAD~1"))
    # First the code that both have, once; then both, interleaved.
    assert [record["commit"] for record in records] in (
        [head] * 2 + [base] * 2,
        [base] * 2 + [head] * 2,
    )
    processes = {(r["commit"], r.get("same_as")): len(r["rounds"]) for r in records}
    assert processes[head, None] == processes[base, None] == 6
    assert processes[head, base] < 6
    # Both were found in folders of their own, of which no record tells.
    assert len({record["sources"] for record in records}) == 1
    assert "projects/" not in json.dumps(records)
    # Nothing was left installed; the next run installs its commit again.
    said = ivhl(
        "bench", "--python", "3.12", "--torch", "2.5.1", "--workload", WORKLOAD, "--variant",
        "real-compiled", "--results", "turns", "--machine", "here", "--force", cwd=clone,
    )  # fmt: skip
    assert f"{WORKLOAD}/medium/real-compiled: " in said


@pytest.mark.full
def test_a_gate_that_is_killed_goes_on(clone: Path) -> None:
    journals = clone / ".asv" / "confirm"
    with subprocess.Popen(
        [sys.executable, "-m", "ivhl", *GATE],
        cwd=clone,
        env=os.environ | {"PYTHONPATH": str(clone)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        wait_until(lambda: any(path.read_bytes().count(b"\n") > 1 for path in journals.glob("*")))
        process.kill()
    wait_until(lambda: not running(clone))
    text = ivhl(*GATE, cwd=clone)
    assert "goes on in round 1: " in text
    # Also the variant that was measured at one commit alone.
    assert {one["rounds"] for one in confirmed(text)} == {1}
    assert not list(journals.glob("*"))


def test_a_full_results_folder_is_refused_before_measuring(clone: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)],
        check=False,
        capture_output=True,
    )
    if mount.returncode:
        pytest.skip("needs the right to mount a tmpfs: " + mount.stderr.decode().strip())
    try:
        said = ivhl("bench", "--python", "3.12", "--results", str(small), cwd=clone, expect=5)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
    assert "MiB free" in said
    assert "--results" in said


def test_all_mistakes_of_a_matrix_are_printed(clone: Path, tmp_path: Path) -> None:
    copy = tmp_path / "project"
    shutil.copytree(clone, copy, ignore=shutil.ignore_patterns(".asv", "site", ".git"))
    matrix = copy / "envs" / "matrix.toml"
    text = matrix.read_text(encoding="utf-8")
    matrix.write_text(
        text.replace('"2.6.0"', "2.6", 1).replace('"2.5.1"', '"two"', 1), encoding="utf-8"
    )
    said = ivhl("matrix", cwd=copy, expect=2)
    assert "2.6" in said
    assert "two" in said
    assert "Traceback" not in said


def running(clone: Path) -> list[str]:
    """Return the command lines of processes that belong to the clone."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue
        if str(clone) in line:
            lines.append(line)
    return lines


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, or fail."""
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.1)
    pytest.fail("waited for three minutes in vain")
