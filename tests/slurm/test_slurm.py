"""``ivhl bench --executor slurm`` on a real Slurm of one node, which is this machine."""

from __future__ import annotations

import getpass
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ivhl.bench import slurm
from ivhl.bench.slurm import parse_options, run_on_slurm
from ivhl.cli import app
from ivhl.errors import ResultsError, SpecError
from ivhl.matrix.locks import matrix_digest
from ivhl.matrix.project import load
from ivhl.matrix.spec import CellSpec
from tests.builders.fleet import make_fleet_project

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel")
SBIN = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/usr/local/sbin"])
ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def program(name: str) -> str:
    return str(shutil.which(name, path=SBIN))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start a Slurm of our own; return its folder."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=SBIN) is None]
    if missing:
        pytest.skip(f"no Slurm on this machine: {', '.join(missing)} not found")
    # Not in pytest's folder: the path of a socket may have 107 bytes only.
    folder = Path(tmp_path_factory.getbasetemp().parent, f"slurm-{os.getpid()}")
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    host = socket.gethostname().partition(".")[0]
    user = getpass.getuser()
    (folder / "slurm.conf").write_text(
        f"""\
ClusterName=ivhl
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
AuthType=auth/munge
AuthInfo=socket={folder}/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
KillWait=1
NodeName={host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""",
        encoding="utf-8",
    )
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    munge = [f"--{what}={folder}/munge{end}" for what, end in MUNGE]
    key = [program("mungekey"), "--create", f"--keyfile={folder}/munge.key"]
    begun: list[subprocess.Popen[bytes]] = []
    try:
        subprocess.run(key, check=True)
        for command in (
            # Forced, because the folder is only this user's.
            [program("munged"), "--foreground", "--force", *munge],
            [program("slurmctld"), "-D", "-c"],
            [program("slurmd"), "-D"],
        ):
            with (folder / "daemons.log").open("ab") as log:
                begun.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
            time.sleep(0.5)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLURM_CONF", environment["SLURM_CONF"])
            patch.setenv("PYTHONPATH", str(ROOT))
            wait_for(lambda: "idle" in asked("sinfo", "--noheader", "--format", "%T"), folder)
            yield folder
    finally:
        # A test that failed may have left some.
        subprocess.run([program("scancel"), f"--user={user}"], env=environment, check=False)
        time.sleep(2)
        for process in reversed(begun):
            process.terminate()
            process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


MUNGE = (
    ("key-file", ".key"),
    ("socket", ""),
    ("pid-file", ".pid"),
    ("log-file", ".log"),
    ("seed-file", ".seed"),
)


def asked(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def wait_for(condition: Callable[[], bool], folder: Path) -> None:
    ends = time.monotonic() + 60
    while not condition():
        if time.monotonic() > ends:
            logs = [p.read_text(errors="replace")[-2000:] for p in folder.glob("*.log")]
            pytest.fail("\n".join(logs))
        time.sleep(0.2)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "_POLL_S", 0.1)
    monkeypatch.setattr(slurm, "_GRACE_S", 1.0)


def jobs() -> list[str]:
    return asked("squeue", "--noheader", "--format", "%i").split()


@pytest.mark.usefixtures("cluster", "quick")
def test_records_are_made_on_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path
    make_fleet_project(root)
    monkeypatch.chdir(root)
    # There is nothing to install for this cell, which is a record as well, made without torch.
    (root / "envs/locks/py3.12-torch2.5.1.txt").unlink()
    reason = root / "envs/locks/py3.12-torch2.5.1.unavailable.txt"
    reason.write_text(unavailable(root), encoding="utf-8")
    asked_for = ["--python", "3.12", "--torch", "2.5.1", "--workload", "ops.two"]
    ours = ["--machine", "node-1", "--no-publish", "--executor", "slurm", "--slurm", "time=5"]
    done = CliRunner().invoke(app, ["bench", *asked_for, *ours])
    assert done.exit_code == 0, done.output
    assert "; its output is in" in done.output
    assert "unavailable" in done.output
    (records,) = (root / "results/node-1/records").glob("*.jsonl")
    (record,) = [json.loads(line) for line in records.read_text(encoding="utf-8").splitlines()]
    assert (record["workload"], record["failure"]["failure_class"]) == ("ops.two", "unavailable")
    wait_for(lambda: not jobs(), root)


def unavailable(root: Path) -> str:
    _, matrix = load(root)
    return f"# Matrix digest: {matrix_digest(matrix, CellSpec('3.12', '2.5.1'))}\n\nno wheels\n"


@pytest.mark.usefixtures("cluster", "quick")
def test_the_exit_code_is_that_of_the_node(tmp_path: Path) -> None:
    said: list[str] = []
    code = run_on_slurm(tmp_path, ["bench", "--nonsense"], {}, said.append)
    assert code == 2
    assert "".join(said).startswith("job ")


@pytest.mark.full
@pytest.mark.usefixtures("cluster", "quick")
def test_a_job_that_is_cancelled_is_told(tmp_path: Path) -> None:
    long_job(tmp_path)

    def cancel(text: str) -> None:
        if match := re.match(r"job (ivhl-\w+);", text):
            wait_for((tmp_path / "begun").exists, tmp_path)
            subprocess.run(["scancel", "--name", match[1]], check=True)

    with pytest.raises(ResultsError, match=r"Slurm job ivhl-\w+: (ended without|signal 15 ended)"):
        run_on_slurm(tmp_path, [], {}, cancel)


@pytest.mark.usefixtures("cluster", "quick")
@pytest.mark.parametrize(
    ("victim", "told"),
    [
        ("os.getpid()", "signal 9 ended the run"),
        ("shell", "ended without a result"),
    ],
    ids=["the run", "its shell"],
)
def test_a_job_that_is_killed_is_told(tmp_path: Path, victim: str, told: str) -> None:
    kill = f"import os, sys; shell = os.getppid(); os.kill({victim}, 9); sys.exit()"
    long_job(tmp_path, then=kill)
    with pytest.raises(ResultsError, match=told):
        run_on_slurm(tmp_path, [], {}, print)


@pytest.mark.usefixtures("cluster", "quick")
def test_an_interrupt_cancels_the_job(tmp_path: Path) -> None:
    long_job(tmp_path)

    def interrupt(text: str) -> None:
        if text.startswith("job "):
            wait_for((tmp_path / "begun").exists, tmp_path)
            signal.raise_signal(signal.SIGINT)

    # What a shell starts in the background ignores interrupts, and so would this test.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_on_slurm(tmp_path, [], {}, interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    wait_for(lambda: not jobs(), tmp_path)


def long_job(folder: Path, then: str = "") -> None:
    """Let ``python -m ivhl`` on the node be a job that does not end by itself."""
    (folder / "ivhl").mkdir()
    (folder / "ivhl" / "__init__.py").touch()
    (folder / "ivhl" / "__main__.py").write_text(
        f"import time\nopen({str(folder / 'begun')!r}, 'w').close()\n{then}\ntime.sleep(600)\n",
        encoding="utf-8",
    )


@pytest.mark.full
@pytest.mark.usefixtures("cluster")
def test_an_array_of_jobs_shares_the_libraries_of_the_observatory(tmp_path: Path) -> None:
    text = (ROOT / "observatory" / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^\$ (sbatch .*)$", text, re.MULTILINE)
    sbatch, *words, wrapped = shlex.split(line.replace("8", "2"))
    output = f"--output={tmp_path}/%a"
    subprocess.run(
        [sbatch, "--wait", output, *words, f"{wrapped} --force --dry-run"], cwd=ROOT, check=True
    )
    every = subprocess.run(
        [*shlex.split(wrapped.partition(" --shard")[0]), "--force", "--dry-run"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    shares = [(tmp_path / number).read_text(encoding="utf-8") for number in "12"]
    runs = [int(said.partition(" runs")[0]) for said in (*shares, every.stdout)]
    assert runs[0] + runs[1] == runs[2]
    assert min(runs) > 0


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"partition": "nowhere"}, "Slurm rejected the job: .*partition"),
        ({"no-such": "1"}, "Slurm rejected the job: .*no-such"),
    ],
)
def test_a_job_that_cannot_be_is_refused(
    tmp_path: Path, options: dict[str, str], match: str
) -> None:
    with pytest.raises(SpecError, match=match):
        run_on_slurm(tmp_path, [], options, print)


def test_without_slurm_the_next_step_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SpecError, match="no sbatch on PATH"):
        run_on_slurm(tmp_path, [], {}, print)


def test_options_have_the_names_of_sbatch() -> None:
    given = ["time=60", "gpus_per_node=1", "exclusive=false", "comment=a=b"]
    assert parse_options(given) == {
        "time": "60",
        "gpus-per-node": "1",
        "exclusive": "false",
        "comment": "a=b",
    }
    for wrong in (["time"], ["=1"], ["time="], ["time=1", "time=2"], ["a_b=1", "a-b=2"]):
        with pytest.raises(SpecError, match="NAME=VALUE"):
            parse_options(wrong)
