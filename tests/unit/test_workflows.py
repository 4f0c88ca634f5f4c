"""Workflows have pinned actions and least permissions, and run no fork on our machines."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import yaml
from typer.core import TyperCommand
from typer.testing import CliRunner

from ivhl.cli import app
from ivhl.matrix.project import find_root
from tests.builders.project import git

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = find_root(Path(__file__))
PATHS = sorted((HERE / ".github" / "workflows").glob("*.yml"))
ACTIONS = HERE / ".github" / "actions"
TEMPLATE = HERE / "ivhl" / "init" / "templates" / "workflow.yml"
USES = re.compile(
    r"^ +(?:- )?uses: (?P<action>[\w./$-]+)(?:@(?P<hash>\S+))?(?P<comment>.*)", re.MULTILINE
)
OURS = re.compile(r"ivhl/ivhl(?P<place>/[\w./-]*)?@(?P<ref>[^\s`]+)")
# A job that measures can upload whatever it wants under any name.
HOSTED = ("ubuntu-24.04",)


def load(path: Path) -> dict[Any, Any]:
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in PATHS:
        for name, job in load(path)["jobs"].items():
            yield f"{path.stem}/{name}", job


def test_there_are_five_workflows() -> None:
    assert [path.stem for path in PATHS] == ["bench", "compare", "nightly", "release", "tests"]


def test_every_action_is_pinned_to_one_hash() -> None:
    pins: dict[str, set[str]] = {}
    for path in (*PATHS, *ACTIONS.glob("*/action.yml"), HERE / "action.yml", TEMPLATE):
        for match in USES.finditer(path.read_text(encoding="utf-8")):
            if match["action"].startswith(("$/", "./")):
                # This repository at the workflow's own commit, or what was checked out.
                assert (HERE / match["action"][2:] / "action.yml").is_file()
                continue
            if match["action"].startswith("ivhl/ivhl/"):
                assert path == TEMPLATE
                assert (HERE / match["action"].removeprefix("ivhl/ivhl/") / "action.yml").is_file()
                assert match["hash"] == "$ivhl"  # filled in by ``ivhl init``
                continue
            assert re.fullmatch(r"[0-9a-f]{40}", match["hash"]), match[0]
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", match["comment"]), match[0]
            pins.setdefault(match["action"], set()).add(match["hash"] + match["comment"])
    assert len(pins) >= 5
    assert all(len(found) == 1 for found in pins.values()), pins


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_workflow_has_no_permission_by_default(path: Path) -> None:
    assert load(path)["permissions"] == {}


def test_every_job_declares_permissions_and_a_time_limit() -> None:
    for name, job in jobs():
        assert isinstance(job["permissions"], dict), name
        assert job["timeout-minutes"] <= 360, name


def test_jobs_that_may_write_run_no_code_of_the_commit() -> None:
    writing = [(n, j) for n, j in jobs() if "write" in j["permissions"].values()]
    assert [name for name, _ in writing] == [
        "bench/attest",
        "bench/comment",
        "bench/keep",
        "bench/pages",
        "compare/comment",
        "nightly/open",
        "release/publish",
        "release/show",
    ]
    for name, job in writing:
        text = yaml.safe_dump(job["steps"])
        assert not re.search(r"pip|ivhl (import|gate|publish|bench|matrix)|nox", text), name
        for step in job["steps"]:
            if "checkout" in step.get("uses", ""):
                # Main's, and of it no more than the scripts that run, unless the job pushes.
                main = "${{ github.event.repository.default_branch }}"
                kept = "${{ needs.merge.outputs.onto }}"
                pushes = name in {"bench/keep", "nightly/open"}
                assert step["with"]["ref"] == (kept if name == "bench/keep" else main), name
                assert ("sparse-checkout" in step["with"]) != pushes, name
                assert step["with"]["persist-credentials"] == pushes, name


def artifact_ids(job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the outputs of a job that are ids of artifacts, each with the step that uploads it."""
    found = {}
    steps = {step["id"]: step for step in job["steps"] if "id" in step}
    for name, text in job.get("outputs", {}).items():
        match = re.fullmatch(
            r"\$\{\{ steps\.(\w+)\.outputs\.(?:artifact-id|artifact) \}\}", str(text)
        )
        if match and re.search("upload-artifact@|/actions/compare", steps[match[1]]["uses"]):
            found[name] = steps[match[1]]
    return found


def test_every_artifact_is_taken_by_the_id_that_a_hosted_job_returned() -> None:
    """A runner that measures can upload ``verdict`` or ``github-pages`` first, or its own again.

    One job reads names: it collects the records, may do nothing, and uploads plain files only.
    """
    taken = 0
    for path in (*PATHS, TEMPLATE):
        text = path.read_text(encoding="utf-8").replace("$$", "$")
        all_jobs = yaml.safe_load(text)["jobs"]
        for name, job in all_jobs.items():
            place = f"{path.stem}/{name}"
            asked = [step.get("with") or {} for step in job["steps"]]
            ids = [str(one["artifact-ids"]) for one in asked if "artifact-ids" in one]
            ids += [str(one["artifact"]) for one in asked if "artifact" in one]
            ids += [s["env"]["ARTIFACT"] for s in job["steps"] if "ARTIFACT" in s.get("env", {})]
            downloads = [s for s in job["steps"] if "download-artifact" in s.get("uses", "")]
            by_name = [step for step in downloads if "artifact-ids" not in step["with"]]
            assert bool(by_name) == (place == "bench/collect"), place
            if by_name:
                assert job["permissions"] == {}
                links, upload = job["steps"][1:]
                assert "find incoming ! -type d ! -type f -print -delete" in links["run"]
                assert upload["with"]["path"] == "incoming"
                assert not any("checkout" in step.get("uses", "") for step in job["steps"])
            for one in ids:
                match = re.fullmatch(r"\$\{\{ needs\.(\w+)\.outputs\.(\w+) \}\}", one)
                assert match is not None, (place, one)
                producer, output = match.groups()
                assert producer in [job["needs"], *job["needs"]], place
                # ``compare.yml`` measures on the caller's runner: its verdict is what that says.
                runs_on = all_jobs[producer]["runs-on"]
                assert runs_on in (*HOSTED, "${{ inputs.runs-on }}"), place
                assert output in artifact_ids(all_jobs[producer]), (place, output)
                # Without an id, download-artifact takes everything.
                where = " ".join(
                    str(part.get("if", ""))
                    for part in (job, *(s for s in job["steps"] if one in str(s.get("with"))))
                )
                assert f"needs.{producer}.outputs.{output} != ''" in where, place
                taken += 1
    assert taken >= 10


def test_a_job_that_may_write_needs_an_artifact_or_an_id() -> None:
    """None reads a file that lies around, or an artifact of a job that it does not wait for."""
    for name, job in jobs():
        if "write" in job["permissions"].values():
            assert "needs" in job, name
            assert "outputs." in job["if"], name
            assert " ".join(job["runs-on"].split()) in HOSTED, name


def test_ivhl_is_called_by_a_commit_wherever_it_is_called() -> None:
    """In workflows, in what ``init`` writes, and in what people copy from the docs."""
    listed = git(HERE, "ls-files", ".github", ".ci", "ivhl", "docs", "README.md", "examples")
    found = []
    for name in listed.splitlines():
        path = HERE / name
        if path.suffix in {".md", ".yml", ".yaml", ".toml", ".py", ""} and path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            found += [(name, one["ref"]) for one in OURS.finditer(text) if one["place"]]
            assert "edit-last" not in text, name
    refs = {ref for _, ref in found}
    assert refs <= {"$ivhl", "COMMIT"} | {ref for ref in refs if re.fullmatch("[0-9a-f]{40}", ref)}
    assert ("ivhl/init/templates/workflow.yml", "$ivhl") in found
    (clone,) = [line for line in gitlab() if "git clone" in line]
    assert 'git -C /tmp/ivhl checkout --quiet "$IVHL"' in clone


def test_no_two_jobs_of_other_trust_share_a_folder_of_packages() -> None:
    """What runs on machines that stay names its caches: uv's, uv's Pythons, pip's."""
    caches = ("UV_CACHE_DIR", "UV_PYTHON_INSTALL_DIR", "PIP_")
    action = load(ACTIONS / "compare" / "action.yml")
    text = yaml.safe_dump(action["runs"]["steps"])
    assert all(name in text for name in caches)
    assert "~/" not in text
    assert text.count("${{ runner.temp }}/ivhl-uv") == 2
    for name, job in jobs():
        if job["runs-on"] not in HOSTED and "uses" not in job:
            steps = yaml.safe_dump(job["steps"])
            assert all(one in steps for one in caches) or "/actions/compare" in steps, name


def test_no_expression_is_expanded_in_a_script() -> None:
    for name, job in jobs():
        for step in job["steps"]:
            assert "${{" not in step.get("run", ""), name


def test_a_fork_gets_our_machines_only_on_request() -> None:
    ours = [job for _, job in jobs() if "self-hosted" in job["runs-on"]]
    assert len(ours) == 1
    (job,) = ours
    words = " ".join(job["if"].split())
    assert words.endswith(
        "&& (github.event_name != 'pull_request' "
        "|| github.event.pull_request.head.repo.full_name == github.repository "
        "|| vars.IVHL_MEASURE_FORKS == 'with-approval')"
    )
    assert " ".join(job["environment"].split()) == (
        "${{ github.event_name == 'pull_request' "
        "&& github.event.pull_request.head.repo.full_name != github.repository "
        "&& 'gpu-forks' || 'gpu' }}"
    )
    # The other triggers need write access to the repository. YAML reads the key `on` as True.
    (bench,) = [load(path) for path in PATHS if path.stem == "bench"]
    assert set(bench[True]) == {"push", "pull_request", "schedule", "workflow_dispatch"}


def test_two_benchmarks_never_share_a_gpu() -> None:
    job = dict(jobs())["bench/measure"]
    (script,) = [s["run"] for s in job["steps"] if "nox" in s.get("run", "")]
    assert script.index("flock") < script.index("ivhl doctor") < script.index("nox -s")
    assert job["concurrency"]["queue"] == "max"


@pytest.fixture(scope="module")
def sessions() -> Any:  # noqa: ANN401  (a module)
    """Return noxfile.py, loaded once: nox refuses sessions of the same name."""
    spec = importlib.util.spec_from_file_location("noxfile_under_test", HERE / "noxfile.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(HERE)
        spec.loader.exec_module(module)
    return module


def test_sessions_and_the_workflow_list_the_same_requirements(
    sessions: Any,  # noqa: ANN401  (a module)
) -> None:
    for required, tags in (
        (sessions.tests.requires, ["check"]),
        (sessions.tests_full.requires, ["check", "full"]),
    ):
        command = [sys.executable, "-m", "nox", "--list", "--tags", *tags, "--json"]
        listed = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True)
        assert sorted(one["session"] for one in json.loads(listed.stdout)) == sorted(required)


def test_beside_a_cell_all_versions_are_locked(
    sessions: Any,  # noqa: ANN401  (a module)
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cell's versions come first; the packages that it lacks have those of CI."""
    calls = []

    class Session:
        python = "3.12"
        virtualenv = SimpleNamespace(location=tmp_path)

        def install(self, *words: str) -> None:
            calls.append(words)

    monkeypatch.chdir(HERE)
    sessions.install_cell(Session(), sessions.OLDEST_TORCH)
    _, (option, file, *_) = calls
    assert option == "--constraint"
    found, cell, ci = (
        {re.split(" |;", pin)[0] for pin in re.findall(r"^[\w.-]+==.*$", text, re.MULTILINE)}
        for text in map(
            Path.read_text,
            (
                Path(file),
                HERE / "envs" / "locks" / f"py3.12-torch{sessions.OLDEST_TORCH}.txt",
                HERE / sessions.GROUPS,
            ),
        )
    )
    names = {pin.partition("==")[0] for pin in cell}
    assert {pin for pin in ci if pin.partition("==")[0] in names} - cell, "versions that differ"
    assert found == cell | {pin for pin in ci if pin.partition("==")[0] not in names}


def test_the_nightly_run_has_more_than_a_push() -> None:
    (tests,) = [load(path) for path in PATHS if path.stem == "tests"]
    assert set(tests[True]) == {"push", "pull_request", "schedule", "workflow_dispatch"}
    (step,) = [s for s in dict(jobs())["tests/sessions"]["steps"] if "env" in s]
    assert step["env"]["TAGS"] == (
        "${{ github.event_name == 'push' && 'check' "
        "|| github.event_name == 'pull_request' && 'check' || 'check full' }}"
    )


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a repository: main with three commits, a branch with one from the second."""
    root = tmp_path / "clone"
    (root / ".ci").mkdir(parents=True)
    shutil.copy(HERE / ".ci" / "base", root / ".ci" / "base")
    git(root, "init", "--quiet", "--initial-branch=main")
    for name in ("one", "two", "three"):
        (root / name).write_text(name, encoding="utf-8")
        git(root, "add", "-A")
        git(root, "commit", "--quiet", "-m", name)
    git(root, "checkout", "--quiet", "-b", "branch", "main~1")
    (root / "four").write_text("four", encoding="utf-8")
    git(root, "add", "-A")
    git(root, "commit", "--quiet", "-m", "four")
    return root


@pytest.mark.skipif(os.name == "nt", reason="a shell script")
@pytest.mark.parametrize(
    ("at", "event", "before", "expected"),
    [
        ("branch", "pull_request", "", "main~1"),
        ("branch", "workflow_dispatch", "", "main~1"),
        ("main", "workflow_dispatch", "", "main~1"),
        ("main~2", "workflow_dispatch", "", ""),
        ("main", "push", "main~2", "main~2"),
        ("main", "push", "0" * 40, ""),
        ("main", "push", "f" * 40, ""),
    ],
)
def test_the_base_is_the_previous_commit(
    clone: Path, at: str, event: str, before: str, expected: str
) -> None:
    def full(name: str) -> str:
        done = subprocess.run(
            ["git", "rev-parse", name], cwd=clone, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    git(clone, "checkout", "--quiet", "--detach", at)
    given = full(before) if before.startswith("main") else before
    done = subprocess.run(
        [clone / ".ci/base", event, given, "main"],
        cwd=clone,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == (full(expected) if expected else "")


# Runs the scripts of the workflows with programs that log their arguments.

NEEDED = ("bash", "cat", "tee", "flock", "git", "hostname", "mkdir", "basename")


def calls(told: list[str]) -> Iterator[list[str]]:
    """Yield the arguments of each logged call of ivhl, also of one that a session of nox makes."""
    for line in told:
        program, *words = [one.strip("<>") for one in re.findall(r"^\w+|<[^>]*>", line)]
        if program == "ivhl":
            yield words
        elif words[:1] == ["-s"]:
            yield ["bench", "--python", words[1].removeprefix("bench-"), *words[3:]]


@pytest.fixture
def stubs(tmp_path: Path) -> Path:
    """Return a folder with few programs, among them ``nox`` and ``ivhl`` that only log arguments."""
    folder = tmp_path / "stubs"
    folder.mkdir()
    for name in NEEDED:
        found = shutil.which(name)
        if found is None:
            pytest.skip(f"no {name} on this machine")
        (folder / name).symlink_to(found)
    for name in ("nox", "ivhl"):
        path = folder / name
        path.write_text(
            f"#!/bin/sh\n(printf '%s' {name}; printf ' <%s>' \"$@\"; echo) >> {tmp_path}/told\n"
            f'[ -z "$SAYS" ] || echo "$SAYS"\nexit ${{STATUS_{name.upper()}:-0}}\n',
            encoding="utf-8",
        )
        path.chmod(0o755)
    return folder


def run_step(
    stubs: Path, job: str, part: str, environment: dict[str, str], *, status: int = 0
) -> tuple[list[str], str]:
    """Run the step of a job whose script contains ``part``; return the logged calls and outputs."""
    (step,) = [s for s in dict(jobs())[job]["steps"] if part in s.get("run", "")]
    told, output = stubs.parent / "told", stubs.parent / "output"
    told.write_text("", encoding="utf-8")
    output.write_text("", encoding="utf-8")
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=stubs.parent,
        env={
            "PATH": str(stubs),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(stubs.parent / "summary"),
            "IVHL_GPU_LOCK": str(stubs.parent / "lock"),
        }
        | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return told.read_text(encoding="utf-8").splitlines(), output.read_text(encoding="utf-8")


INPUTS = {
    "TIER": "default",
    "TORCH": "",
    "WORKLOAD": "",
    "SIZE": "",
    "VARIANT": "",
    "SUITE": "auto",
    "FORCE": "",
}


def test_the_matrix_gets_the_inputs_of_the_workflow(
    stubs: Path,
    refused: Any,  # noqa: ANN401
) -> None:
    git(stubs.parent, "init", "--quiet")
    git(stubs.parent, "commit", "--quiet", "--allow-empty", "-m", "one")
    given = INPUTS | {"DEVICE": "cuda", "SAYS": '{"include":[]}'}
    told, output = run_step(stubs, "bench/cells", "ivhl matrix", given)
    want = "<matrix> <--tier> <default> <--device> <cuda> <--format> <github>"
    assert told == [f"ivhl {want} <--stale>"]
    assert output == 'matrix={"include":[]}\n'
    _, output = run_step(stubs, "bench/cells", "rev-parse", {})
    assert re.fullmatch(r"commit=[0-9a-f]{40}\n", output)
    given |= {"TORCH": "2.5.1 2.6.0", "WORKLOAD": "ops.x", "SIZE": "small", "FORCE": "true"}
    given |= {"VARIANT": "a b", "SUITE": "full"}
    told, _ = run_step(stubs, "bench/cells", "ivhl matrix", given)
    more = "<--torch> <2.5.1> <--torch> <2.6.0> <--workload> <ops.x> <--size> <small>"
    more += " <--variant> <a> <--variant> <b> <--suite> <full>"
    assert told == [f"ivhl {want} {more}"]
    assert not any(refused(words) for words in calls(told))


@pytest.mark.parametrize("tags", ["check", "check full"])
def test_the_sessions_are_listed_by_their_tags(stubs: Path, tags: str) -> None:
    (stubs / "jq").write_text("#!/bin/sh\nexec cat\n", encoding="utf-8")
    (stubs / "jq").chmod(0o755)
    told, output = run_step(stubs, "tests/sessions", "nox", {"TAGS": tags, "SAYS": "[]"})
    words = " ".join(f"<{tag}>" for tag in tags.split())
    assert told == [f"nox <--list> <--tags> {words} <--json>"]
    assert output == "sessions=[]\n"


def test_everything_is_measured_weekly_and_kept_like_a_push() -> None:
    (step,) = [s for s in dict(jobs())["bench/cells"]["steps"] if "SUITE" in s.get("env", {})]
    assert step["env"]["SUITE"] == (
        "${{ inputs.suite || github.event_name == 'schedule' && 'full' || 'auto' }}"
    )
    found = dict(jobs())
    upload = [s for s in steps_of("bench/report") if s.get("id") == "site"]
    assert upload
    for where in (*upload, found["bench/merge"], found["bench/keep"], found["bench/pages"]):
        assert "github.event_name == 'push' || github.event_name == 'schedule'" in where["if"]


def test_a_matrix_that_fails_to_list_fails_the_job(stubs: Path) -> None:
    given = INPUTS | {"DEVICE": "cpu", "STATUS_IVHL": "3"}
    run_step(stubs, "bench/cells", "ivhl matrix", given, status=3)


MEASURE = {
    "PYTHON": "3.12",
    "ARGUMENTS": "--torch 2.6.0 --device cuda",
    "DEVICE": "cuda",
    "FORCE": "false",
    "MORE": "--threads 4",
    "MACHINE": "gpubox",
    "HOME": "/home/runner",
}


@pytest.mark.parametrize(
    ("at", "cache", "written"),
    [
        ("main", "", []),
        ("main~1", "/data/uv", []),
        ("branch", "", ["/home/runner/.cache/uv-branches", "branches"]),
        ("branch", "/data/uv", ["/data/uv-branches", "branches"]),
        ("fork", "", ["/home/runner/.cache/uv-forks", "forks"]),
    ],
)
def test_what_is_not_on_main_has_a_cache_and_files_of_its_own(
    stubs: Path, clone: Path, at: str, cache: str, written: list[str]
) -> None:
    """Whether a pull request brought it, or somebody named the commit of a fork by hand."""
    git(clone, "update-ref", "refs/remotes/origin/branch", "branch")
    git(clone, "checkout", "--quiet", "--detach", "main" if at == "fork" else at)
    if at == "fork":
        git(clone, "commit", "--quiet", "--allow-empty", "-m", "of a fork")
    (clone / "environment").touch()
    given = {"MAIN": "main", "HOME": "/home/runner", "GITHUB_ENV": str(clone / "environment")}
    given |= {"UV_CACHE_DIR": cache} if cache else {}
    (clone / "stubs").symlink_to(stubs)
    run_step(clone / "stubs", "bench/measure", "UV_LINK_MODE", given)
    lines = []
    if written:
        uv, whose = written
        lines = [
            f"UV_CACHE_DIR={uv}",
            f"UV_PYTHON_INSTALL_DIR=/home/runner/.local/share/uv/python-{whose}",
            f"PIP_CACHE_DIR=/home/runner/.cache/pip-{whose}",
            "UV_LINK_MODE=copy",
        ]
    assert (clone / "environment").read_text().splitlines() == lines
    steps = [step.get("run", "") for step in steps_of("bench/measure")]
    (isolated,) = [n for n, text in enumerate(steps) if "UV_LINK_MODE" in text]
    assert isolated < min(n for n, text in enumerate(steps) if "pip install" in text)


def test_a_machine_is_checked_before_it_measures(
    stubs: Path,
    refused: Any,  # noqa: ANN401
) -> None:
    told, _ = run_step(stubs, "bench/measure", "nox", MEASURE)
    folder = stubs.parent / "measured"
    ours = f"<--machine> <gpubox> <--results> <{folder}> <--no-publish>"
    given = "<--torch> <2.6.0> <--device> <cuda> <--threads> <4>"
    assert told == [
        "ivhl <doctor> <--device> <cuda> <--machine> <gpubox>",
        f"nox <-s> <bench-3.12> <--> {given} {ours}",
    ]
    assert not any(refused(words) for words in calls(told))


def test_a_machine_that_fails_the_check_does_not_measure(stubs: Path) -> None:
    told, _ = run_step(stubs, "bench/measure", "nox", MEASURE | {"STATUS_IVHL": "1"}, status=1)
    assert [line.split()[0] for line in told] == ["ivhl"]


def test_a_busy_gpu_is_waited_for(stubs: Path) -> None:
    lock = stubs.parent / "lock"
    (step,) = [s for s in dict(jobs())["bench/measure"]["steps"] if "flock" in s.get("run", "")]
    assert "--timeout 18000" in step["run"]
    (stubs / "flock").unlink()
    (stubs / "flock").write_text(
        f"#!/bin/sh\nexec {shutil.which('flock')} --timeout 0.2 9\n", encoding="utf-8"
    )
    (stubs / "flock").chmod(0o755)
    holder = subprocess.Popen([str(shutil.which("flock")), "--no-fork", str(lock), "sleep", "60"])
    try:
        taken = [str(shutil.which("flock")), "--nonblock", str(lock), "true"]
        while subprocess.run(taken, check=False).returncode == 0:
            time.sleep(0.01)
        told, _ = run_step(stubs, "bench/measure", "nox", MEASURE, status=1)
    finally:
        holder.kill()
        holder.wait()
    assert told == []


@pytest.mark.parametrize(
    ("imported", "gate", "status"),
    [("0", "0", 0), ("6", "0", 6), ("0", "7", 7), ("6", "7", 7), ("0", "", 0)],
)
def test_refusals_and_regressions_fail_at_the_end(
    stubs: Path, imported: str, gate: str, status: int
) -> None:
    given = {"IMPORTED": imported, "GATE": gate}
    run_step(stubs, "bench/report", "ivhl gate: $GATE", given, status=status)


# The actions for other projects.


@pytest.fixture
def pull_request(stubs: Path) -> Path:
    """Return a repository with a branch ``topic`` checked out, which left ``main`` behind."""
    root = stubs.parent / "theirs"
    root.mkdir()
    git(root, "init", "--quiet", "-b", "main")
    git(root, "commit", "--quiet", "--allow-empty", "-m", "common")
    git(root, "checkout", "--quiet", "-b", "topic")
    git(root, "commit", "--quiet", "--allow-empty", "-m", "topic")
    git(root, "checkout", "--quiet", "main")
    git(root, "commit", "--quiet", "--allow-empty", "-m", "later")
    git(root, "checkout", "--quiet", "topic")
    for name in ("sed", "env", "tail"):
        (stubs / name).symlink_to(str(shutil.which(name)))
    return root


def run_compare(root: Path, stubs: Path, more: dict[str, str]) -> tuple[int, str, str]:
    """Run the script of the action; return its exit code, the call of ivhl, and the summary."""
    told, summary = stubs.parent / "told", stubs.parent / "summary"
    told.write_text("", encoding="utf-8")
    summary.write_text("", encoding="utf-8")
    environment = {"PATH": str(stubs), "BASE": "main", "GITHUB_STEP_SUMMARY": str(summary)}
    done = subprocess.run(
        [ACTIONS / "compare" / "compare"],
        cwd=root,
        env=environment | more,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, told.read_text(encoding="utf-8"), summary.read_text(encoding="utf-8")


def test_a_pull_request_is_compared_with_its_last_common_commit(
    stubs: Path,
    pull_request: Path,
    refused: Any,  # noqa: ANN401
) -> None:
    common = git(pull_request, "rev-parse", "main~1")
    code, told, summary = run_compare(
        pull_request, stubs, {"SAYS": "### fine", "ARGUMENTS": "--python 3.12"}
    )
    assert code == 0
    assert told == (
        f"ivhl <gate> <--base> <{common}> <--machine> <by-processor> <--results> "
        "<.asv/gate/results> <--measure> <--confirm> <--format> <github> <--python> <3.12>\n"
    )
    assert not any(refused(words) for words in calls(told.splitlines()))
    assert summary.startswith("### fine\n")
    assert f"ivhl gate --base {common} --measure" in summary


@pytest.mark.parametrize("status", [0, 7, 8, 2])
def test_the_exit_code_of_the_gate_is_that_of_the_job(
    stubs: Path, pull_request: Path, status: int
) -> None:
    more = {"STATUS_IVHL": str(status), "SAYS": "### verdict"}
    assert run_compare(pull_request, stubs, more)[0] == status
    output = stubs.parent / "output"
    output.write_text("", encoding="utf-8")
    code, _, _ = run_compare(pull_request, stubs, more | {"GITHUB_OUTPUT": str(output)})
    assert (code, output.read_text(encoding="utf-8")) == (0, f"code={status}\n")
    steps = load(ACTIONS / "compare" / "action.yml")["runs"]["steps"]
    last = subprocess.run(["bash", "-c", steps[-1]["run"]], env={"CODE": str(status)}, check=False)
    assert last.returncode == status


def run_check(root: Path, folder: Path, **named: str) -> tuple[int, str, str]:
    """Run the script of the action at the top with the real ivhl; return code, log and summary."""
    summary = folder / "summary"
    summary.write_text("", encoding="utf-8")
    done = subprocess.run(
        [ACTIONS / "check" / "check"],
        cwd=root,
        env=os.environ
        | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        | {"GITHUB_STEP_SUMMARY": str(summary)}
        | named,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, summary.read_text(encoding="utf-8")


def test_a_dependency_that_does_not_compile_fails_a_planted_pull_request(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.9.1\ngpytorch\n")
    code, log, summary = run_check(tmp_path, tmp_path, READY="requirements.txt")
    assert code == 1
    assert "\n::error file=requirements.txt,title=Dependencies::exit code 1" in log
    assert summary.startswith("### Dependencies\n\n    requirements.txt with PyTorch 2.9.1")
    assert "gpytorch" in summary
    (tmp_path / "requirements.txt").write_text("torch==2.15.0\neinops\n")
    assert run_check(tmp_path, tmp_path, READY="requirements.txt")[0] == 0


def test_what_a_pull_request_prints_is_neither_a_command_nor_markup(tmp_path: Path) -> None:
    name = "x,y\r::error::a.txt"
    (tmp_path / name).write_text("::add-mask::secret\n")
    code, log, summary = run_check(tmp_path, tmp_path, READY=name)
    assert code == 2
    began, *answer, ended, last = log.splitlines()
    guard = began.removeprefix("::stop-commands::")
    assert ended == f"::{guard}::"
    assert len(guard) == 32
    assert not any(guard in line for line in answer)
    assert last.startswith("::error file=x%2Cy%0D%3A%3Aerror%3A%3Aa.txt,title=Dependencies::")
    assert all(line.startswith(("###", "    ")) for line in summary.splitlines() if line.strip())


def test_a_check_of_nothing_is_an_error_and_the_largest_exit_code_counts(tmp_path: Path) -> None:
    assert run_check(tmp_path, tmp_path)[0] == 2
    (tmp_path / "requirements.txt").write_text("einops\n")
    code, log, summary = run_check(tmp_path, tmp_path, READY="requirements.txt", TRY="nothing.py")
    assert code == 2
    assert "title=Target::exit code 2" in log
    assert "### Target" in summary


def test_an_error_in_place_of_a_verdict_is_shown(stubs: Path, pull_request: Path) -> None:
    (stubs / "ivhl").write_text("#!/bin/sh\necho 'error: no matrix' >&2\nexit 2\n")
    code, _, summary = run_compare(pull_request, stubs, {})
    assert code == 2
    assert "### ivhl could not compare\n\n    error: no matrix\n" in summary


def test_an_error_cannot_end_its_code_block(stubs: Path, pull_request: Path) -> None:
    """Markdown ends a line at a carriage return as well."""
    (stubs / "ivhl").write_text("#!/bin/sh\nprintf 'error: x\\r# @everyone\\n' >&2\nexit 2\n")
    _, _, summary = run_compare(pull_request, stubs, {})
    assert "\r" not in summary
    assert "\n    error: x\n    # @everyone\n" in summary


def test_a_base_that_git_does_not_have_is_told_in_the_summary(
    stubs: Path, pull_request: Path
) -> None:
    """A shallow clone lacks it; without a verdict nobody but the log would say why."""
    code, told, summary = run_compare(pull_request, stubs, {"BASE": "origin/none"})
    assert (code, told) == (2, "")
    assert summary.startswith("### ivhl could not compare\n")
    assert "no common commit of origin/none and HEAD; fetch the whole history" in summary
    assert "Measure it yourself" not in summary


def test_one_comment_is_written_and_then_edited_in_place_and_nobody_elses(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    # Like gh: lists the comments that were posted, in the order of their numbers.
    (tmp_path / "bin" / "gh").write_text(
        "#!/bin/sh\n"
        f'echo "$@" >> {tmp_path}/calls\n'
        'case "$*" in *graphql*) echo "github-actions[bot]";;\n'
        f"*@tsv*) cat {tmp_path}/known;; esac\n"
    )
    (tmp_path / "bin" / "gh").chmod(0o755)
    (tmp_path / "verdict").mkdir()
    (tmp_path / "verdict" / "verdict.md").write_text("### worse\n" + "x" * 70000)
    environment = {
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_REPOSITORY": "they/theirs",
        "NUMBER": "12",
    }
    command = [str(ACTIONS / "comment" / "comment"), "verdict"]
    mark, bot = "<!-- ivhl gate -->", "github-actions[bot]"
    for known, method, place in (
        ("", "POST", "repos/they/theirs/issues/12/comments"),
        (f"66\tmallory\t{mark}\n", "POST", "repos/they/theirs/issues/12/comments"),
        (
            f"66\tmallory\t{mark}\n77\t{bot}\t{mark}\n88\t{bot}\t{mark}\n99\t{bot}\tby hand\n",
            "PATCH",
            "repos/they/theirs/issues/comments/77",
        ),
    ):
        (tmp_path / "known").write_text(known)
        (tmp_path / "calls").write_text("")
        subprocess.run(command, cwd=tmp_path, env=environment, check=True)
        calls = (tmp_path / "calls").read_text()
        assert f"--method {method} {place} --raw-field body=<!-- ivhl gate -->\n### worse" in calls
        assert len(calls) < 65000


def test_a_verdict_that_is_a_link_or_very_long_tells_nothing_else(tmp_path: Path) -> None:
    """Measured code wrote the artifact: a link in it may lead to the environment of this job."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gh").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n')
    (tmp_path / "bin" / "gh").chmod(0o755)
    folder = tmp_path / "verdict"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "verdict.md").symlink_to("/proc/self/environ")
    (folder / "verdict.md").write_text("### worse\n" + "x" * 5_000_000)
    environment = {
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_REPOSITORY": "they/theirs",
        "GH_TOKEN": "a-secret",
        "NUMBER": "12",
    }
    command = [str(ACTIONS / "comment" / "comment"), "verdict"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    told = (tmp_path / "calls").read_text()
    assert "### worse" in told
    assert "a-secret" not in told
    assert len(told) < 65000


class _Pages(BaseHTTPRequestHandler):
    """What GitHub answers the script that deploys; the class of a test has its artifacts."""

    artifacts: ClassVar[dict[str, dict[str, Any]]]
    states: ClassVar[list[str]]
    posted: ClassVar[list[dict[str, Any]]]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        given = self.headers["Authorization"]
        if path == "/identity" and given == "Bearer of-the-runner":
            self._answer(200, {"value": "who-this-job-is"})
        elif path.startswith("/repos/we/ours/actions/artifacts/") and given == "Bearer a-secret":
            found = self.artifacts.get(path.rpartition("/")[2])
            self._answer(200 if found else 404, found or {"message": "Not Found"})
        elif path == "/repos/we/ours/pages/deployments/77":
            state = self.states.pop(0)
            self._answer(500 if state == "500" else 200, {"status": state})
        else:
            self._answer(404, {"message": path})

    def do_POST(self) -> None:
        self.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._answer(200, {"id": 77, "page_url": "https://we.github.io/ours/"})

    def _answer(self, code: int, data: dict[str, Any]) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(data).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (its own name)
        pass


def deploy(
    tmp_path: Path, artifact: str, digest: str, states: list[str]
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]], str]:
    """Run the script that deploys against a server; return its end, what it posted, its outputs.

    This run has two artifacts of one name: the site, and what a runner uploaded beforehand.
    """

    class Server(_Pages):
        artifacts: ClassVar = {
            "5": {"id": 5, "digest": "sha256:planted", "workflow_run": {"id": 9}},
            "6": {"id": 6, "digest": "sha256:made", "workflow_run": {"id": 9}},
            "7": {"id": 7, "digest": "sha256:made", "workflow_run": {"id": 8}},
        }
        posted: ClassVar = []

    Server.states = states
    output = tmp_path / "output"
    output.touch()
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        api = f"http://127.0.0.1:{server.server_port}"
        done = subprocess.run(
            [sys.executable, HERE / ".ci" / "deploy-pages.py"],
            env={
                "GITHUB_API_URL": api,
                "GITHUB_REPOSITORY": "we/ours",
                "GITHUB_RUN_ID": "9",
                "GITHUB_SHA": "f" * 40,
                "GITHUB_TOKEN": "a-secret",
                "INTERVAL_S": "0",
                "ACTIONS_ID_TOKEN_REQUEST_URL": f"{api}/identity?api-version=2",
                "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "of-the-runner",
                "GITHUB_OUTPUT": str(output),
                "ARTIFACT": artifact,
                "DIGEST": digest,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        server.shutdown()
    return done, Server.posted, output.read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of the server's sockets
@pytest.mark.parametrize(
    ("artifact", "digest", "states", "told"),
    [
        ("6", "made", ["deployment_in_progress", "500", "succeed"], ""),
        ("6", "made", ["syncing_files", "deployment_content_failed"], "deployment_content_failed"),
        ("6", "made", ["500"] * 10, "HTTP 500"),
        (
            "5",
            "made",
            [],
            "artifact 5 must be of run 9 with sha256:made (got run 9 with sha256:pl",
        ),
        ("7", "made", [], "got run 8 with sha256:made): nothing is deployed"),
        ("404", "made", [], "HTTP 404"),
        ("", "", [], "ARTIFACT must be the id of an artifact (got '')"),
        ("../../../x", "made", [], "ARTIFACT must be the id of an artifact"),
    ],
)
def test_only_the_artifact_that_the_hosted_job_made_becomes_the_site(
    tmp_path: Path, artifact: str, digest: str, states: list[str], told: str
) -> None:
    done, posted, output = deploy(tmp_path, artifact, digest, list(states))
    assert (done.returncode == 0) == (told == ""), done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    asked = {"artifact_id": 6, "pages_build_version": "f" * 40, "oidc_token": "who-this-job-is"}
    assert posted == ([asked] if states else [])
    assert output == ("page_url=https://we.github.io/ours/\n" if states else "")


def test_a_link_among_collected_records_is_not_uploaded(tmp_path: Path) -> None:
    (script,) = [s["run"] for s in steps_of("bench/collect") if "run" in s]
    folder = tmp_path / "incoming" / "records-x" / "box" / "records"
    folder.mkdir(parents=True)
    (folder / "x.jsonl").write_text("{}")
    (folder / "y.jsonl").symlink_to("/proc/self/environ")
    (tmp_path / "incoming" / "z").symlink_to("/etc")
    os.mkfifo(folder / "p.jsonl")
    for _ in range(2):
        subprocess.run(["bash", "-c", script], cwd=tmp_path, check=True, capture_output=True)
        found = [path for path in (tmp_path / "incoming").rglob("*") if not path.is_dir()]
        assert [path.name for path in found] == ["x.jsonl"]
    shutil.rmtree(tmp_path / "incoming")  # as where nothing was uploaded
    subprocess.run(["bash", "-c", script], cwd=tmp_path, check=True)


def test_the_written_workflow_has_no_secret_and_runs_nothing_where_it_may_write() -> None:
    text = TEMPLATE.read_text(encoding="utf-8")
    workflow = yaml.safe_load(text.replace("$$", "$"))
    assert "secrets." not in text
    assert "pull_request_target" not in text
    assert workflow["permissions"] == {}
    jobs_ = workflow["jobs"]
    assert jobs_["compare"]["permissions"] == {"contents": "read"}
    assert [list(step) for step in jobs_["comment"]["steps"]] == [["uses", "with"]]
    assert len(text.splitlines()) <= 47


def steps_of(job: str) -> list[dict[str, Any]]:
    return list(dict(jobs())[job]["steps"])


def test_what_a_reviewer_approved_is_what_runs() -> None:
    """The commit is known before code of the pull request runs, and named again where it is used."""
    steps = steps_of("bench/cells")
    names = [step.get("id") or step.get("run", "") for step in steps]
    assert names.index("commit") < names.index("python -m pip install --quiet -e .")
    assert dict(jobs())["bench/cells"]["outputs"]["commit"] == "${{ steps.commit.outputs.commit }}"
    for job in ("bench/measure", "bench/report"):
        (checkout,) = [s for s in steps_of(job) if "checkout" in s.get("uses", "")]
        assert checkout["with"]["ref"] == (
            "${{ github.event.pull_request.head.sha || needs.cells.outputs.commit }}"
        )


def test_measured_records_are_uploaded_whatever_happens() -> None:
    measure = dict(jobs())["bench/measure"]
    (run,) = [n for n, step in enumerate(measure["steps"]) if "nox" in step.get("run", "")]
    upload = measure["steps"][run + 1]
    assert upload["if"] == "${{ always() }}"
    assert upload["with"]["path"] == "measured/*/records/"
    # A job that reaches its own limit is cancelled before it can upload.
    assert measure["steps"][run]["timeout-minutes"] + 10 <= measure["timeout-minutes"]
    names = [s.get("id") or s.get("with", {}).get("name", "") for s in steps_of("bench/report")]
    assert names.index("import") + 1 == names.index("results") < names.index("gate")
    (upload,) = [s for s in steps_of("bench/report") if s.get("with", {}).get("name") == "results"]
    assert "always()" in upload["if"]


def test_the_action_uploads_what_it_measured_whatever_happens() -> None:
    action = load(HERE / ".github" / "actions" / "compare" / "action.yml")
    (upload,) = [step for step in action["runs"]["steps"] if "upload" in step.get("uses", "")]
    assert upload["if"] == "${{ always() }}"


def test_a_push_that_only_brings_records_is_published() -> None:
    words = " ".join(dict(jobs())["bench/report"]["if"].split())
    assert "needs.measure.result != 'skipped' || github.event_name == 'push'" in words


def test_an_import_of_nothing_is_no_failure(stubs: Path) -> None:
    git(stubs.parent, "init", "--quiet", "--initial-branch=main")
    (stubs.parent / "results").mkdir()
    (stubs.parent / "results" / "x").touch()
    git(stubs.parent, "add", "results")
    git(stubs.parent, "commit", "--quiet", "-m", "one")
    told, output = run_step(stubs, "bench/report", "ivhl import incoming 2>&1", {"MAIN": "main"})
    assert told == []
    assert output == "imported=0\n"


def kept(
    stubs: Path, tmp_path: Path, files: dict[str, str], meanwhile: dict[str, str]
) -> tuple[Path, int]:
    """Run the job that keeps records where main moves after the import; return main, and a status.

    Args:
        stubs: Programs.
        tmp_path: For the repositories.
        files: What the import wrote into ``results/``.
        meanwhile: What main got in the meantime.
    """
    for name in ("sleep", "env", "sed", "git-upload-pack", "git-receive-pack"):
        found = shutil.which(name)
        if found and not (stubs / name).exists():
            (stubs / name).symlink_to(found)
    main, clone = tmp_path / "main.git", stubs.parent / "clone"
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", str(main))
    git(tmp_path, "clone", "--quiet", str(main), str(clone))
    write(clone, {"results/a/records/x.jsonl": "1\n", "results/benchmarks.json": "{}\n"})
    git(clone, "checkout", "--quiet", "-B", "main")
    git(clone, "add", "-A")
    git(clone, "commit", "--quiet", "-m", "one")
    git(clone, "push", "--quiet", "origin", "main")
    onto = git(clone, "rev-parse", "HEAD")
    write(clone, meanwhile)
    git(clone, "add", "-A")
    git(clone, "commit", "--quiet", "-m", "an import by hand")
    git(clone, "push", "--quiet", "origin", "main")
    git(clone, "checkout", "--quiet", "--detach", onto)
    write(clone, files)
    (step,) = [s for s in steps_of("bench/keep") if "git push" in s.get("run", "")]
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=clone,
        # Without an identity of a user: HOME is empty, as on a runner.
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "COMMIT": "f" * 40,
            "MAIN": "main",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    git(clone, "fetch", "--quiet", "origin", "main")
    git(clone, "reset", "--quiet", "--hard")
    git(clone, "checkout", "--quiet", "--detach", "FETCH_HEAD")
    return clone / "results", done.returncode


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def test_what_was_imported_meanwhile_stays(stubs: Path, tmp_path: Path) -> None:
    results, status = kept(
        stubs,
        tmp_path,
        {"results/a/records/x.jsonl": "1\n2\n", "results/b/records/y.jsonl": "3\n"},
        {"results/a/records/x.jsonl": "1\n9\n", "results/c/records/z.jsonl": "4\n"},
    )
    assert status == 0
    found = {path.name: path.read_text().split() for path in results.glob("*/records/*")}
    assert {name: sorted(lines) for name, lines in found.items()} == {
        "x.jsonl": ["1", "2", "9"],
        "y.jsonl": ["3"],
        "z.jsonl": ["4"],
    }


def test_two_changes_of_one_file_of_asv_fail_and_keep_main(stubs: Path, tmp_path: Path) -> None:
    results, status = kept(
        stubs,
        tmp_path,
        {"results/benchmarks.json": '{"a": 1}\n'},
        {"results/benchmarks.json": '{"b": 2}\n'},
    )
    assert status == 1
    assert (results / "benchmarks.json").read_text() == '{"b": 2}\n'


def test_nothing_new_is_no_commit(stubs: Path, tmp_path: Path) -> None:
    results, status = kept(stubs, tmp_path, {}, {"results/d/records/w.jsonl": "5\n"})
    assert status == 0
    assert (results / "d" / "records" / "w.jsonl").exists()


# The scripts of all steps, and every command line of ivhl in them.


def gitlab() -> list[str]:
    """Return the script that the docs have for GitLab."""
    text = (HERE / "docs" / "track.md").read_text(encoding="utf-8")
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    (job,) = [block["ivhl"] for block in blocks if "ivhl" in block]
    return list(job["script"])


def scripts() -> Iterator[tuple[str, str]]:
    """Yield each script of ours that a runner executes, and where it is."""
    for name, job in jobs():
        for number, step in enumerate(job["steps"]):
            if "run" in step:
                yield f"{name}/{number}", step["run"]
    for path in ACTIONS.glob("*/action.yml"):
        for number, step in enumerate(load(path)["runs"]["steps"]):
            if "run" in step:
                assert step["shell"] == "bash"
                yield f"{path.parent.name}/{number}", step["run"]
    for path in (*ACTIONS.glob("*/*"), *(HERE / ".ci").iterdir()):
        if path.suffix == ".py":
            assert os.access(path, os.X_OK), path
        elif path.suffix != ".yml":
            assert os.access(path, os.X_OK), path
            yield path.relative_to(HERE).as_posix(), path.read_text(encoding="utf-8")
    yield "docs/track.md", "\n".join(gitlab())


SCRIPTS = dict(scripts())
# What stands for the variables of the command lines.
VARIABLES = {
    "DEVICE": "cuda",
    "MACHINE": "gpubox",
    "PWD": "/here",
    "PYTHON": "3.12",
    "READY": "requirements.txt",
    "SITE": "https://owner.github.io/name",
    "TARGET": "torch.nn:Linear(4, 4)",
    "base": "main",
    "common": "main~1",
}
COMMAND = re.compile(r"(?<![\w/.#-])(?<!<!-- )(?:ivhl|nox -s) (?:\\\n|[^\n|>;&)`])+")


def command_lines(script: str) -> Iterator[list[str]]:
    """Yield the command lines of ivhl in a script, also those that a session of nox makes."""
    lines = (line for line in script.splitlines() if not re.match(r"\s*(#|echo )", line))
    for match in COMMAND.finditer("\n".join(lines)):
        text = re.sub(r'"\$\{\w+\[@\]\}"| \d$', "", match[0].replace("\\\n", " "))
        words = shlex.split(re.sub(r"\$\{?(\w+)\}?", lambda found: VARIABLES[found[1]], text))
        if words[:2] == ["nox", "-s"]:
            if words[2].startswith("bench-"):
                assert words[3] == "--"
                yield ["bench", "--python", words[2].removeprefix("bench-"), *words[4:]]
        elif words[0] == "ivhl":
            yield words[1:]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401  (a function)
    """Return a function that says why ivhl's own parser refuses a command line, or nothing."""
    monkeypatch.setattr(TyperCommand, "invoke", lambda self, context: None, raising=False)  # noqa: ARG005
    monkeypatch.chdir(HERE)

    def parse(words: list[str]) -> str:
        done = CliRunner().invoke(app, words)
        return done.output if done.exit_code else ""

    return parse


@pytest.mark.parametrize("place", SCRIPTS)
def test_the_shell_of_a_step_parses(place: str) -> None:
    done = subprocess.run(
        ["bash", "-n"], input=SCRIPTS[place], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_command_line_of_a_step_is_one_that_ivhl_takes(refused: Any) -> None:  # noqa: ANN401
    found = [(place, words) for place, text in SCRIPTS.items() for words in command_lines(text)]
    called = {words[0] for _, words in found}
    assert {"advise", "bench", "compat", "doctor", "gate", "import", "matrix", "publish"} <= called
    for place, words in found:
        assert not refused(words), (place, words)
    assert "No such option" in refused(["gate", "--base", "main", "--confrim"])
    assert "is not one of" in refused(["matrix", "--device", "cdua"])


def test_a_script_of_gitlab_calls_the_step_of_the_action() -> None:
    (call,) = [line for line in gitlab() if "compare/compare" in line]
    _, _, place = call.split()[-1].partition("/ivhl/")
    assert os.access(HERE / place, os.X_OK)
    assert "FETCH_HEAD" in call
