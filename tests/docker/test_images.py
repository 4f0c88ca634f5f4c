"""Images and containers on a real engine: contents, isolation, and every failure.

Most tests use the image of a cell without torch, which is built in seconds: each case then ends with
the failure ``import``, which is a record like any other. The last test has a real cell.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

import ivhl.image.executor
from ivhl.bench.request import Request, Selection
from ivhl.errors import ResultsError
from ivhl.image.build import EngineError, build_image, list_images
from ivhl.image.container import RUN_LABEL, measure_in_container
from ivhl.image.executor import DockerExecutor
from ivhl.image.recipe import PackageSources, make_recipe
from ivhl.matrix.locks import LockState, lock_state
from ivhl.matrix.project import load_project
from ivhl.matrix.spec import CellSpec
from ivhl.measure.effort import Effort
from ivhl.measure.settings import Settings
from ivhl.workload import Case, load_workloads, select_cases
from studies.stored import load_records
from tests.docker.conftest import PYTHON, ROOT, Daemon
from tests.docker.engine import docker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ivhl.image.build import Image
    from ivhl.records.record import RunRecord

REAL = CellSpec(PYTHON, "2.5.1")
WORKLOAD = "ops.normalize_field"
MIRROR = "mirror-that-nobody-may-know.example"
MARK = "a certificate that nobody may see"


def small_lock(folder: Path, cell: str = "0.0.0", *, broken: bool = False) -> LockState:
    """Return a lock without torch, for a cell outside the matrix."""
    text = lock_state(ROOT, REAL).path.read_text(encoding="utf-8")
    wanted = re.findall(r"^(?:asv-runner|flit-core|filelock)==.*(?:\n    .*)*", text, re.MULTILINE)
    assert len(wanted) == 3
    if broken:
        wanted[0] = re.sub(r"sha256:[0-9a-f]{64}", f"sha256:{'0' * 64}", wanted[0])
    spec = CellSpec(PYTHON, cell)
    path = folder / f"{spec.id}.txt"
    path.write_text("\n".join(wanted) + "\n", encoding="utf-8")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return LockState(cell=spec, kind="locked", path=path, sha256=sha256)


@pytest.fixture(scope="module")
def engine(daemon: Daemon, clone: Path) -> Iterator[DockerExecutor]:
    made = DockerExecutor(clone)
    yield made
    made.client.close()
    for image in list_images(daemon.client):
        labels = daemon.client.images.get(image.id).labels
        if labels["org.ivhl.cell"].endswith("0.0.0"):
            daemon.client.images.remove(image.id, force=True)


@pytest.fixture(scope="module")
def lock(tmp_path_factory: pytest.TempPathFactory) -> LockState:
    return small_lock(tmp_path_factory.mktemp("lock"))


@pytest.fixture(scope="module")
def image(engine: DockerExecutor, lock: LockState) -> Image:
    return engine.image(lock, "cpu", lambda _: None)


class Bench:
    """A run of some cases of one workload, without the cells of the matrix."""

    def __init__(self, engine: DockerExecutor, clone: Path, results: Path, **changes: Any) -> None:  # noqa: ANN401
        request = Request(root=clone, python=PYTHON, selection=Selection(workloads=(WORKLOAD,)))
        project = load_project(clone)
        machine = engine.machine(request)
        made = Settings.of_checkout(
            clone,
            project=project.name,
            workloads=project.workloads,
            machine=machine,
            results=results,
        )
        # More cases than start together, so that a run can end between two of them.
        self.cases: tuple[Case, ...] = select_cases(
            load_workloads(project.workloads), names=[WORKLOAD, "ops.vortex_field", "ops.gp_euler"]
        )
        names = tuple(case.name for case in self.cases)
        self.settings: Settings = replace(made, names=names, **changes)
        self.commit = subprocess.run(
            ["git", "-C", str(clone), "rev-parse", "HEAD"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        self._engine = engine
        self.said = StringIO()

    def __call__(self, *locks: LockState) -> tuple[str, ...]:
        """Measure in these cells; return the cases without a record."""
        console = Console(file=self.said, width=200)
        return self._engine.measure(
            self.settings, locks, self.cases, commit=self.commit, console=console
        )

    @property
    def records(self) -> tuple[RunRecord, ...]:
        """The written records."""
        return load_records(Path(self.settings.results)).records


@pytest.fixture
def bench(engine: DockerExecutor, clone: Path, tmp_path: Path) -> Bench:
    return Bench(engine, clone, tmp_path / "results")


@contextmanager
def when_heard(
    monkeypatch: pytest.MonkeyPatch, event: str, do: Callable[[Any], None]
) -> Iterator[None]:
    """Call a function with the running container when it prints an event."""
    real = measure_in_container
    done: list[str] = []

    def measure(client: Any, order: Any, receive: Any) -> None:  # noqa: ANN401
        def listen(message: dict[str, Any]) -> None:
            said = message["event"]
            receive(message)
            if said == event and not done:
                done.append(said)
                filters = {"label": f"{RUN_LABEL}={order.run}"}
                (container,) = client.containers.list(filters=filters)
                do(container)

        real(client, order, listen)

    with monkeypatch.context() as patch:
        patch.setattr(ivhl.image.executor, "measure_in_container", measure)
        yield
    assert done == [event]


LIST_PACKAGES = """
import hashlib, json
from importlib.metadata import distributions
print(json.dumps({
    one.name.lower().replace("_", "-"): hashlib.sha256(
        "".join(sorted((one.read_text("RECORD") or "").splitlines())).encode()
    ).hexdigest()
    for one in distributions()
}))
"""


def packages_in(daemon: Daemon, image: str) -> dict[str, str]:
    """Return the packages of an image, each with a digest of the hashes of its files."""
    printed = daemon.client.containers.run(
        image, ["python", "-c", LIST_PACKAGES], network_mode="none", read_only=True, remove=True
    )
    found: dict[str, str] = json.loads(printed)
    return found


def no_containers(daemon: Daemon) -> bool:
    return not daemon.client.containers.list(all=True, filters={"label": RUN_LABEL})


def test_an_image_has_the_packages_of_its_lock_and_labels(
    daemon: Daemon, image: Image, lock: LockState
) -> None:
    assert packages_in(daemon, image.id).keys() == {"asv-runner", "flit-core", "filelock"}
    found = daemon.client.containers.run(image.id, ["g++", "--version"], remove=True)
    assert b"Free Software" in found
    assert image.lock == lock.sha256
    attributes = daemon.client.images.get(image.id).attrs
    labels = attributes["Config"]["Labels"]
    assert labels["org.ivhl.cell"] == lock.cell.id
    assert labels["org.opencontainers.image.base.name"] == daemon.base
    assert attributes["Config"]["User"] == "ivhl"


def test_an_existing_image_is_not_rebuilt_and_two_builds_are_equal(
    engine: DockerExecutor, daemon: Daemon, image: Image, lock: LockState
) -> None:
    assert engine.image(lock, "cpu", lambda _: None).id == image.id
    again = engine.image(lock, "cpu", lambda _: None, fresh=True)
    assert again.id != image.id
    held = [packages_in(daemon, one.id) for one in (image, again)]
    assert held[0] == held[1]


@pytest.mark.parametrize("buildkit", [pytest.param("0", marks=pytest.mark.full), "1"])
def test_mirrors_and_certificates_are_nowhere_in_an_image(
    daemon: Daemon,
    clone: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    buildkit: str,
) -> None:
    if buildkit == "1":
        monkeypatch.setenv("PATH", path_with_buildkit())
    monkeypatch.setenv("DOCKER_BUILDKIT", buildkit)
    certificates = tmp_path / "ca.pem"
    bundle = Path("/etc/ssl/certs/ca-certificates.crt").read_text(encoding="utf-8")
    certificates.write_text(f"# {MARK}\n{bundle}", encoding="utf-8")
    lock = small_lock(tmp_path, f"{buildkit}.0.0.0")
    recipe = make_recipe(clone, lock, device="cpu", commit="0" * 40)
    sources = PackageSources({"UV_INSECURE_HOST": MIRROR}, certificates)
    image = build_image(daemon.client, recipe, sources)
    assert packages_in(daemon, image.id).keys() >= {"filelock"}
    saved = b"".join(daemon.client.images.get(image.id).save(named=True))
    held = [part for part in files_in(saved) if MIRROR.encode() in part or MARK.encode() in part]
    assert held == []
    # Check that the search can find something at all.
    assert any(b"ivhl:x:10001" in part for part in files_in(saved))
    # The builder's cache of the installing stage has no label of a cell.
    left = daemon.client.images.list(filters={"dangling": True, "label": "org.ivhl.build"})
    assert [one.id for one in left if "org.ivhl.cell" not in one.labels] == []


def path_with_buildkit() -> str:
    """Return a ``PATH`` whose docker command has BuildKit; skip the test without one."""
    folders = os.environ["PATH"].split(os.pathsep)
    for folder in folders:
        path = os.pathsep.join([folder, *folders])
        if (Path(folder) / "docker").is_file():
            done = subprocess.run(
                [str(Path(folder) / "docker"), "build", "--quiet", "-"],
                input=b"FROM scratch\nLABEL a=b\n",
                env=os.environ | {"DOCKER_BUILDKIT": "1", "PATH": path},
                capture_output=True,
                check=False,
            )
            if done.returncode == 0:
                return path
    pytest.skip("no docker command here builds with BuildKit")


def files_in(saved: bytes) -> Iterator[bytes]:
    """Yield every member of a saved image: its configuration, and the files of its layers."""
    with tarfile.open(fileobj=BytesIO(saved)) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None and member.name.endswith(".tar"):
                with tarfile.open(fileobj=file) as layer:
                    for one in layer:
                        part = layer.extractfile(one) if one.isfile() else None
                        yield part.read() if part is not None else one.name.encode()
            elif file is not None:
                yield file.read()


def test_a_failed_build_is_reported_and_the_others_run(  # noqa: PLR0917  (fixtures)
    engine: DockerExecutor,
    daemon: Daemon,
    image: Image,
    lock: LockState,
    tmp_path: Path,
    bench: Bench,
) -> None:
    broken = small_lock(tmp_path, "9.0.0", broken=True)
    shown: list[str] = []
    with pytest.raises(EngineError, match=r"py3\.12-torch9\.0\.0 cannot be built"):
        engine.image(broken, "cpu", shown.append)
    assert any("ash mismatch" in line for line in shown)
    missing = bench(broken, lock)
    assert missing == tuple(f"{broken.cell.id}: {case.name}" for case in bench.cases)
    assert {record.cell.id for record in bench.records} == {lock.cell.id}
    assert "FAILED" in bench.said.getvalue()
    assert daemon.client.images.get(image.id)
    assert no_containers(daemon)


def test_records_name_their_image(lock: LockState, bench: Bench, engine: DockerExecutor) -> None:
    assert bench(lock) == ()
    image = engine.image(lock, "cpu", lambda _: None)
    assert len(bench.records) == len(bench.cases)
    for record in bench.records:
        assert record.conditions.image == image.id
        assert record.cell.lock_sha256 == lock.sha256
        assert record.commit == bench.commit
        assert record.machine == bench.settings.machine
        assert record.failure is not None
        assert record.failure.failure_class == "import"
        assert {"flit-core", "ivhl"} <= {p.split("==")[0] for p in record.conditions.packages}
        assert record.command.endswith("--executor docker")


def test_a_container_is_isolated_except_for_its_scratch_folder(
    lock: LockState, bench: Bench, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, str] = {}

    tries = {
        "user": "id -u",
        "root": "touch /file 2>&1; touch /opt/ivhl/file 2>&1",
        "network": "ls /sys/class/net",
        "cpus": "grep Cpus_allowed_list /proc/self/status",
        "scratch": "cd /scratch && cp /bin/true there && ./there && echo runs",
        "capabilities": "grep CapEff /proc/self/status",
    }

    def look(container: Any) -> None:  # noqa: ANN401
        # In one call: the container continues its work and may end soon.
        script = "; echo next; ".join(f"({command})" for command in tries.values())
        said = container.exec_run(["sh", "-c", script]).output.decode()
        found.update(zip(tries, said.split("next\n"), strict=True))
        host = container.attrs["HostConfig"]
        found["memory"] = f"{host['Memory']} {host['MemorySwap']}"

    bench.settings = replace(bench.settings, effort=Effort(memory_limit=1 << 30))
    # A container has at most the CPUs of its engine.
    cpu = str(max(os.sched_getaffinity(0)))
    monkeypatch.setattr(bench._engine, "_cpus", cpu)
    with when_heard(monkeypatch, "cell-building", look):
        assert bench(lock) == ()
    assert found["user"].strip() == "10001"
    assert found["root"].count("Read-only file system") == 2
    assert found["network"].split() == ["lo"]
    assert found["cpus"].split()[1:] == [cpu]
    assert found["scratch"].strip() == "runs"
    assert int(found["capabilities"].split()[1], 16) == 0
    assert found["memory"] == " ".join([str(int((1 << 30) / 0.9))] * 2)
    assert no_containers(daemon)


@pytest.mark.full
def test_a_killed_container_loses_no_finished_record(
    lock: LockState, bench: Bench, daemon: Daemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    second = small_lock(tmp_path, "1.0.0")
    with when_heard(monkeypatch, "case-finished", lambda container: container.kill()):
        missing = bench(lock, second)
    assert 0 < len(missing) < len(bench.cases)
    assert all(line.startswith(lock.cell.id) for line in missing)
    assert "ended before its work was done (exit status 137)" in bench.said.getvalue()
    done = {(record.cell.id, record.workload, record.variant) for record in bench.records}
    assert len(done) == 2 * len(bench.cases) - len(missing)
    # Then only the missing cases are measured.
    kept = bench.records
    assert bench(lock, second) == ()
    assert len(kept) < len(bench.records)
    assert all(record in bench.records for record in kept)
    assert "has a record already" in bench.said.getvalue()
    assert no_containers(daemon)


@pytest.mark.full
def test_a_missing_image_is_reported_and_the_other_cells_run(  # noqa: PLR0917  (fixtures)
    lock: LockState,
    bench: Bench,
    engine: DockerExecutor,
    daemon: Daemon,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    second = small_lock(tmp_path, "2.0.0")
    gone = engine.image(second, "cpu", lambda _: None)
    real = engine.image

    def image(lock: LockState, *arguments: Any, **options: Any) -> Image:  # noqa: ANN401
        found = real(lock, *arguments, **options)
        if found.id == gone.id:  # it is removed between the check and the run
            daemon.client.images.remove(found.id, force=True)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(engine, "image", image)
        missing = bench(second, lock)
    assert {line.split(":")[0] for line in missing} == {second.cell.id}
    assert "it is built when it is missing" in bench.said.getvalue()
    assert len(bench.records) == len(bench.cases)
    assert bench(second, lock) == ()  # built again


def test_a_commit_that_does_not_build_has_records_of_the_failure(
    lock: LockState, bench: Bench, clone: Path
) -> None:
    with in_commit(clone, "pyproject.toml", "[project]\nname = 5\n") as commit:
        bench.commit = commit
        assert bench(lock) == ()
    classes = {r.failure.failure_class for r in bench.records if r.failure}
    assert classes == {"build"}
    assert len(bench.records) == len(bench.cases)
    assert all(record.conditions.image for record in bench.records)


@contextmanager
def in_commit(clone: Path, name: str, text: str) -> Iterator[str]:
    """Yield a commit with another text in a file; the working tree is unchanged."""

    def git(*words: str) -> str:
        identity = ("-c", "user.name=test", "-c", "user.email=test@example.invalid")
        command = ["git", "-C", str(clone), *identity, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    head = git("rev-parse", "HEAD")
    (clone / name).write_text(text, encoding="utf-8")
    git("commit", "--quiet", "-am", "another text")
    commit = git("rev-parse", "HEAD")
    git("reset", "--hard", "--quiet", head)
    yield commit


def test_a_missing_gpu_is_reported(lock: LockState, bench: Bench, engine: DockerExecutor) -> None:
    if shutil.which("nvidia-smi"):
        pytest.skip("this machine has a GPU")
    image = engine.image(lock, "cpu", lambda _: None)
    bench.settings = replace(bench.settings, effort=Effort(device="cuda"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "image", lambda *_, **__: image)
        assert len(bench(lock)) == len(bench.cases)
    assert "NVIDIA container toolkit" in bench.said.getvalue()


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_full_disk_ends_the_run_and_the_container(
    lock: LockState, bench: Bench, daemon: Daemon
) -> None:
    results = Path(bench.settings.results)
    results.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "none", str(results)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no small disk can be mounted here")
    try:
        with pytest.raises(ResultsError, match="No space left on device") as caught:
            bench(lock)
        assert "free disk space" in caught.value.hint
    finally:
        subprocess.run(["umount", str(results)], check=True)
    assert no_containers(daemon)


def test_containers_of_a_killed_run_are_removed_by_the_next(
    image: Image, bench: Bench, engine: DockerExecutor, daemon: Daemon
) -> None:
    daemon.client.containers.run(
        image.id, ["sleep", "600"], detach=True, labels={RUN_LABEL: engine._run}
    )
    other = daemon.client.containers.run(
        image.id, ["sleep", "600"], detach=True, labels={RUN_LABEL: "of another checkout"}
    )
    bench()  # a run of no cell
    left = daemon.client.containers.list(filters={"label": RUN_LABEL})
    other.remove(force=True)
    assert [container.id for container in left] == [other.id]


@pytest.mark.full
def test_an_engine_that_dies_loses_no_finished_record(
    lock: LockState, bench: Bench, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    if daemon.process is None:
        pytest.skip("the engine that is here is not ours to kill")
    with (
        when_heard(monkeypatch, "case-finished", lambda _: daemon.die()),
        pytest.raises(EngineError, match="no Docker engine answers"),
    ):
        bench(lock)
    kept = bench.records
    assert 0 < len(kept) < len(bench.cases)
    assert all(record.conditions.image for record in kept)
    daemon.restart()
    bench._engine.check(bench.settings, PYTHON)
    assert bench(lock) == ()
    assert len(kept) < len(bench.records)
    assert all(record in bench.records for record in kept)
    assert len(bench.records) == len(bench.cases)
    assert no_containers(daemon)


@pytest.mark.full
def test_a_real_cell_is_built_measured_and_shown(daemon: Daemon, clone: Path) -> None:
    """Build, measure and publish as a user does; the slowest test of this file."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NOX")}
    environment |= {"COLUMNS": "120", "PYTHONPATH": str(clone)}
    command = [
        *(sys.executable, "-m", "nox", "-s", f"bench-{PYTHON}", "--", "--executor", "docker"),
        *("--torch", REAL.torch, "--workload", WORKLOAD, "--variant", "real-compiled"),
        *("--machine", "here"),
    ]
    done = subprocess.run(
        command, cwd=clone, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = load_records(clone / "results").records
    (image,) = list_images(daemon.client, REAL.id)
    lock = lock_state(clone, REAL)
    assert record.conditions.image == image.id
    assert record.cell.lock_sha256 == lock.sha256 == image.lock
    pins = {f"{name}=={version}" for name, version in lock.packages.items()}
    assert set(record.conditions.packages) - pins == {f"ivhl=={version('ivhl')}"}
    assert pins <= set(record.conditions.packages)
    assert record.failure is None
    assert record.speedup is not None
    assert record.compile is not None
    assert record.compile.warm_s is not None
    details = (path.read_text() for path in (clone / "site" / "data").rglob("*.js"))
    assert any(image.id in text for text in details)
    assert (clone / "results" / "here" / "machine.json").is_file()
    assert docker(None, "image", "inspect", image.id).returncode == 0
    daemon.client.images.remove(image.id, force=True)
