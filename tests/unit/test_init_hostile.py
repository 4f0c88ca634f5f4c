"""A tree of strangers: nothing outside of it changes, nothing hangs, nothing is half written."""

from __future__ import annotations

import ast
import errno
import os
import shutil
import signal
import socket
import string
import subprocess
import sys
import time
import tomllib
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from packaging.utils import InvalidName, canonicalize_name

from ivhl.errors import IvhlError, ResultsError, SpecError
from ivhl.git import copy_tree
from ivhl.init.check import check_project
from ivhl.init.declare import write_changes
from ivhl.init.plan import WORKFLOW, _benchmarks, _workflow, make_plan
from ivhl.init.source import ProjectSource, lines_for_build, read_source
from ivhl.matrix.locks import put_lock
from ivhl.matrix.project import find_root, load_project
from ivhl.matrix.spec import load_matrix, read_plain, toml_text
from ivhl.matrix.uv import run_uv, uv_pool
from ivhl.measure.alone import only_run_here
from ivhl.records import files
from ivhl.records.files import UNFINISHED, record_file, write_whole
from ivhl.syntax import read_texts
from tests.builders.adopting import PACKAGE, PYPROJECT, TODAY, init, project, resolver  # noqa: F401  (a fixture)
from tests.builders.fleet import tree
from tests.builders.project import git

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

ROOT = Path(__file__).parents[2]
FILES = {"pyproject.toml": PYPROJECT, **PACKAGE}


@contextmanager
def waiting_for_nothing() -> Iterator[None]:
    """Fail where reading waits without end."""

    def fail(*_: object) -> None:
        raise AssertionError("it waits without end")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(60)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return project(tmp_path / "demo", FILES)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a folder that no command may change."""
    folder = tmp_path / "outside"
    (folder / "records").mkdir(parents=True)
    (folder / "file").write_text("precious\n")
    return folder


# --- links


@pytest.mark.parametrize(
    ("name", "to"),
    [
        (".gitignore", "file"),
        (".gitignore", "new"),
        ("pyproject.toml", "pyproject.toml"),
        (".github", "records"),
        (".github/workflows", "records"),
        ("envs", "records"),
        ("envs/locks", "records"),
        ("envs/locks/SHA256SUMS", "file"),
        ("envs/matrix.toml", "new"),
    ],
)
def test_init_writes_through_no_link(root: Path, outside: Path, name: str, to: str) -> None:
    (outside / "pyproject.toml").write_text(PYPROJECT)
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).unlink(missing_ok=True)
    (root / name).symlink_to(outside / to)
    before = tree(outside)
    with pytest.raises(IvhlError, match=f"{name}: must not be a link"):
        init(root, ["3.12"], ["2.5.1"], github=True)
    assert tree(outside) == before
    assert not (root / "benchmarks").exists()


def test_a_folder_of_benchmarks_that_is_a_link_is_somebody_elses(
    root: Path, outside: Path
) -> None:
    (root / "benchmarks").symlink_to(outside)
    before = tree(outside)
    init(root, ["3.12"], ["2.5.1"])
    assert (root / "ivhl_benchmarks" / "model.py").is_file()
    assert tree(outside) == before


def test_an_unfinished_file_that_is_a_link_is_replaced(root: Path, outside: Path) -> None:
    for name in ("pyproject.toml", ".gitignore"):
        (root / f"{UNFINISHED}{name}.part").symlink_to(outside / "file")
    before = tree(outside)
    init(root, ["3.12"], ["2.5.1"])
    assert tree(outside) == before
    assert not list(root.glob(f"{UNFINISHED}*"))


WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a record": (
        "results/box",
        lambda root: record_file(root / "results", "box", "0" * 40, "py3.12-torch2.5.1"),
    ),
    "a lock": (
        "envs/locks/py3.12-torch2.5.1.txt",
        lambda root: put_lock(root, load_matrix(root / "envs/matrix.toml").cells()[0], b"x==1\n"),
    ),
    "known failures": (
        "envs/expectations.toml",
        lambda root: write_whole(root / "envs" / "expectations.toml", b"x", root),
    ),
    "the lock of a checkout": (".asv/lock", lambda root: only_run_here(root).__enter__()),
}


@pytest.mark.parametrize("name", WRITERS)
def test_no_writer_follows_a_link(root: Path, outside: Path, name: str) -> None:
    init(root, ["3.12"], ["2.5.1"])
    place, write = WRITERS[name]
    (root / place).parent.mkdir(parents=True, exist_ok=True)
    (root / place).unlink(missing_ok=True)
    (root / place).symlink_to(outside / ("records" if place == "results/box" else "file"))
    before = tree(outside)
    with pytest.raises((IvhlError, OSError)):
        write(root)
    assert tree(outside) == before


def test_a_project_that_is_reached_through_a_link_is_written(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    init(tmp_path / "link", ["3.12"], ["2.5.1"], github=True)
    assert (root / "envs" / "matrix.toml").is_file()
    assert (root / WORKFLOW).is_file()


@pytest.mark.parametrize("name", [".asv", "results", "site"])
def test_a_link_of_its_user_is_taken_and_one_of_the_repository_refused(
    root: Path, outside: Path, name: str
) -> None:
    init(root, ["3.12"], ["2.5.1"])
    (root / name).symlink_to(outside)
    assert find_root(root) == root
    git(root, "add", "--force", name)
    with pytest.raises(SpecError, match=f"{name}: must not be in git") as refused:
        find_root(root)
    assert f"git rm -r --cached {name}" in refused.value.hint


def test_results_that_became_a_link_after_git_had_their_files_are_named_as_a_link(
    root: Path, outside: Path
) -> None:
    init(root, ["3.12"], ["2.5.1"])
    (root / "results" / "box").mkdir(parents=True)
    (root / "results" / "box" / "a.jsonl").touch()
    git(root, "add", "--force", "results")
    shutil.rmtree(root / "results")
    (root / "results").symlink_to(outside)
    with pytest.raises(SpecError, match="results: must not be a link, since git tracks results/"):
        find_root(root)


# What writes or deletes by itself, per file: into temporary folders, caches and `.asv`, or a path
# that the user names. Everything in a project or in results goes through ivhl/records/files.py.
WRITES = {
    "cli/bisection.py": 1,  # its log in .asv
    "cli/blame.py": 1,  # --output
    "cli/fleet.py": 2,  # a folder of the user's cache, and --output
    "cli/report.py": 2,  # a script in a temporary folder, and --output
    "cli/screen.py": 1,  # --output
    "fleet/bring.py": 1,  # behind `without_links`
    "fleet/keys.py": 1,  # a temporary folder
    "fleet/timings.py": 3,  # a temporary folder, and results in the user's cache
    "fleet/worker.py": 1,  # locks in the user's cache
    "init/plan.py": 3,  # the temporary folder in which it locks
    "matrix/locks.py": 3,  # temporary folders, and a lock beside the one just written
    "matrix/releases.py": 1,  # temporary folders
    "matrix/wheels.py": 1,
    "records/files.py": 7,  # what all others call
    "tracker/store/index.py": 4,  # the cache of its user
    "tracker/store/kept.py": 1,  # makes the folder of the results
    "version_checks/names.py": 1,  # of a syntax tree
}
_WRITING = frozenset(
    {"write_text", "write_bytes", "mkdir", "unlink", "rename", "rmtree", "copytree", "copyfile",
     "copy2", "copy", "symlink_to", "hardlink_to", "touch", "rmdir", "removedirs", "move"}
)  # fmt: skip


def test_whatever_writes_into_a_project_goes_the_way_that_refuses_links() -> None:
    found = {}
    for room in ("cli", "fleet", "init", "matrix", "records", "tracker", "version_checks"):
        for path in sorted((ROOT / "ivhl" / room).rglob("*.py")):
            calls = [n for n in ast.walk(ast.parse(path.read_bytes())) if isinstance(n, ast.Call)]
            if n := sum(map(_writes, calls)):
                found[path.relative_to(ROOT / "ivhl").as_posix()] = n
    assert found == WRITES


def _writes(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "replace":  # of a path, not of a text or a date
        return len(call.args) == 1 and not call.keywords and isinstance(call.args[0], ast.Name)
    if name == "open":
        texts = [one.value for one in call.args if isinstance(one, ast.Constant)]
        return any(isinstance(text, str) and text[:1] in ("w", "a", "x") for text in texts)
    return name in _WRITING


# --- what never ends, or is too large


def fifo(path: Path) -> None:
    os.mkfifo(path)


def zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def itself(path: Path) -> None:
    path.symlink_to(path.name)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def unix_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # its name may have 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


ODD = [fifo, zero, itself, huge, unix_socket]


@pytest.mark.parametrize("make", ODD)
def test_a_package_with_something_that_never_ends_is_read(
    root: Path, make: Callable[[Path], None]
) -> None:
    make(root / "tensor_things" / "odd.py")
    with waiting_for_nothing():
        texts, problems = read_texts(root)
    assert (len(texts), len(problems)) == (2, make is huge)


READ = (
    "pyproject.toml", "setup.py", "setup.cfg", ".gitignore", ".python-version", "noxfile.py",
    "asv.conf.json", "envs/matrix.toml", "envs/locks/SHA256SUMS", "envs/expectations.toml",
    "envs/locks/py3.12-torch2.5.1.txt", "benchmarks/model.py", "benchmarks/__init__.py",
    "benchmarks/model_calls.py",
)  # fmt: skip


@pytest.mark.parametrize("make", ODD)
def test_whatever_file_never_ends_init_and_check_end(
    root: Path, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    init(root, ["3.12"], ["2.5.1"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in READ:
        path, kept = root / name, root / "kept"
        if path.exists():
            path.rename(kept)
        make(path)
        with waiting_for_nothing():
            for command in (
                lambda: make_plan(root, ["3.12"], ["2.5.1"], github=False, today=TODAY),
                lambda: check_project(root),
            ):
                with suppress(IvhlError, OSError):
                    command()
        path.unlink()
        if kept.exists():
            kept.rename(path)


def test_a_tree_deeper_than_the_stack_is_read(root: Path) -> None:
    folder = os.open(root / "tensor_things", os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=folder)
        inside = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inside
    os.close(folder)
    try:
        assert len(read_texts(root)[0]) == 2
        assert lines_for_build(root, "benchmarks") == ""
        setuptools = PYPROJECT.replace("hatchling.build", "setuptools.build_meta")
        (root / "pyproject.toml").write_text(setuptools)
        assert '"tensor_things"' in lines_for_build(root, "benchmarks")
    finally:
        subprocess.run(["rm", "-rf", str(root / "tensor_things")], check=True)


def test_what_a_link_leads_to_is_read_by_a_build_and_not_copied(
    root: Path, outside: Path, tmp_path: Path
) -> None:
    (root / "README").symlink_to(outside / "file")
    (root / "inside").symlink_to("pyproject.toml")
    copy = copy_tree(root, tmp_path / "copy")
    assert (copy / "README").read_text() == "precious\n"
    assert (copy / "inside").read_text() == PYPROJECT
    assert (copy / "README").is_symlink()


@pytest.mark.parametrize("coding", ["rot13", "hex", "undefined", "nonsense", "utf-16"])
def test_a_file_in_an_encoding_of_no_text_is_a_problem_of_its_own(root: Path, coding: str) -> None:
    (root / "tensor_things" / "odd.py").write_text(f"# coding: {coding}\nx = 1\n")
    texts, problems = read_texts(root)
    assert len(texts) == 2
    assert len(problems) == 1


def test_a_plain_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_plain(tmp_path / "file", 5) == b"12345"
    with pytest.raises(OSError, match="must have at most 4 bytes"):
        read_plain(tmp_path / "file", 4)


# --- texts in other languages


def source_named(root: Path, name: str) -> ProjectSource:
    (root / "pyproject.toml").write_text(PYPROJECT.replace('"tensor-things"', toml_text(name)))
    return read_source(root)


@given(st.text(st.characters(exclude_categories=["Cs"])))
@example("\x7f")
@example('"; \\')
@example("'\"\n")
def test_a_text_in_toml_is_read_as_it_was(text: str) -> None:
    assert tomllib.loads(f"x = {toml_text(text)}")["x"] == text


_SIGNS = [*string.printable, '"""', "\\", "$", "${x}", "{", "é", "\uff21", "\u2028"]
_NAMES = st.lists(st.sampled_from(_SIGNS), min_size=1, max_size=9).map("".join)


def test_a_name_is_refused_or_makes_python_that_only_declares(root: Path) -> None:
    @given(_NAMES)
    @example('a"""\nimport os\nos.system("id")\n"""')
    @example("a\\")
    @example("--target")
    def law(name: str) -> None:
        try:
            canonicalize_name(name, validate=True)
        except InvalidName:
            with pytest.raises(SpecError, match="name: must be a name by PEP 508"):
                source_named(root, name)
            return
        for change in _benchmarks(source_named(root, name), "benchmarks"):
            kinds = {type(one) for one in ast.parse(change.data).body}
            assert kinds <= {
                ast.Expr, ast.ImportFrom, ast.Assign, ast.Import, ast.FunctionDef
            }  # fmt: skip

    law()


@pytest.mark.parametrize("table", ["project", "tool.ivhl"])
def test_every_command_refuses_a_name_that_no_project_may_have(root: Path, table: str) -> None:
    text = '[tool.ivhl]\nbenchmarks = "benchmarks"\n' if table == "project" else ""
    more = "" if text else 'benchmarks = "benchmarks"\n'
    (root / "pyproject.toml").write_text(f'{text}[{table}]\nname = "--target"\n{more}')
    with pytest.raises(SpecError, match=f"{table}.name: must be a name by PEP 508"):
        load_project(root)


def test_a_package_with_the_name_of_a_keyword_is_not_imported(tmp_path: Path) -> None:
    files = {"pyproject.toml": PYPROJECT, "class/__init__.py": "", "not/__init__.py": ""}
    assert read_source(project(tmp_path / "demo", files)).package == ""


@pytest.mark.parametrize(
    "folder",
    [
        'a"b',
        "a\\b",
        "a'b: c",
        "- x",
        "#x",
        "é",
        "{a: b}",
        "&a",
        "*a",
        "!a",
        "a # b",
        "|",
        "%",
        "\U0001f600",
    ],
)
def test_a_folder_is_in_the_workflow_as_it_is(tmp_path: Path, folder: str) -> None:
    top = project(tmp_path / "top", {f"{folder}/pyproject.toml": PYPROJECT})
    text = _workflow(read_source(top / folder), top)
    steps = yaml.safe_load(text)["jobs"]["compare"]["steps"]
    assert steps[-1]["with"]["folder"] == folder


@pytest.mark.parametrize("folder", ["a\nb", "${{ secrets.X }}", "a\x7fb", "a\x1b[2J"])
def test_a_folder_that_github_would_not_read_as_it_is_is_refused(
    tmp_path: Path, folder: str
) -> None:
    top = project(tmp_path / "top", {f"{folder}/pyproject.toml": PYPROJECT})
    with pytest.raises(SpecError, match="--format github: the folder's name must be printable"):
        _workflow(read_source(top / folder), top)


# --- half written


def undisturbed(tmp_path: Path) -> dict[str, bytes]:
    root = project(tmp_path / "undisturbed" / "demo", FILES)
    init(root, ["3.12"], ["2.5.1"], github=True)
    return contents(root)


def contents(root: Path) -> dict[str, bytes]:
    return {name: data for name, data in tree(root).items() if not name.startswith(".git/")}


@pytest.mark.parametrize(
    "how", ["full", pytest.param("interrupted", marks=pytest.mark.full), "killed"]
)
def test_wherever_init_is_stopped_the_same_command_goes_on(tmp_path: Path, how: str) -> None:
    wanted = undisturbed(tmp_path)
    stopped = 0
    for n in range(1, 40):
        root = project(tmp_path / f"{n}" / "demo", FILES)
        plan = make_plan(root, ["3.12"], ["2.5.1"], github=True, today=TODAY)
        if not _stop_at(n, lambda root=root, plan=plan: write_changes(root, plan.changes), how):  # type: ignore[misc]
            break
        stopped += 1
        for path in root.rglob("*.*"):
            assert not path.is_file() or path.stat().st_size or path.name in FILES
        init(root, ["3.12"], ["2.5.1"], github=True)
        assert contents(root) == wanted
    assert stopped > 10


def _stop_at(n: int, act: Callable[[], object], how: str) -> bool:
    """Run in a process of its own; stop at the n-th call that writes. Return whether one did."""
    with warnings.catch_warnings(action="ignore"):  # a worker of pytest-xdist has threads
        process = os.fork()
    if not process:
        code = 0
        try:
            _planted(n, how)
            act()
        except BaseException:  # noqa: BLE001  (the process ends here)
            code = 1
        os._exit(code)
    return os.waitpid(process, 0)[1] != 0


def _planted(n: int, how: str) -> None:
    left = [n]

    def ends(real: Callable[..., object]) -> Callable[..., object]:
        def call(self: Path, *words: object) -> object:
            left[0] -= 1
            if left[0]:
                return real(self, *words)
            if real is write:
                write(self, bytes(words[0])[:1])  # type: ignore[call-overload]
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "interrupted":
                raise KeyboardInterrupt
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

        return call

    write = Path.write_bytes
    Path.write_bytes = ends(write)  # type: ignore[assignment, method-assign]
    Path.replace = ends(Path.replace)  # type: ignore[assignment, method-assign]


def test_a_disk_that_is_really_full_leaves_nothing_half_written(tmp_path: Path) -> None:
    wanted = undisturbed(tmp_path)
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no disk can be mounted: it needs root")
    try:
        root = project(disk / "demo", FILES)
        plan = make_plan(root, ["3.12"], ["2.5.1"], github=True, today=TODAY)
        space = os.statvfs(disk)
        filler = disk / "filler"
        filler.write_bytes(b"x" * ((space.f_bavail - 4) * space.f_frsize))
        with pytest.raises(ResultsError, match="No space left") as full:
            write_changes(root, plan.changes)
        assert "run the same command again" in full.value.hint
        filler.unlink()
        init(root, ["3.12"], ["2.5.1"], github=True)
        assert contents(root) == wanted
    finally:
        subprocess.run(["umount", str(disk)], check=True)


BACKEND = """\
import os, pathlib, subprocess, sys, time
def build_wheel(*_):
    beside = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    pathlib.Path(os.environ["PIDS"]).write_text(f"{os.getpid()} {beside.pid}")
    time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_build_that_is_stopped_leaves_no_process_and_no_folder(
    tmp_path: Path, how: signal.Signals
) -> None:
    text = (
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "x"\nversion = "1"\ndynamic = ["dependencies"]\n'
    )
    root = project(tmp_path / "demo", {"pyproject.toml": text, "backend.py": BACKEND})
    (tmp_path / "tmp").mkdir()
    pids = tmp_path / "pids"
    command = [sys.executable, "-m", "ivhl", "init", "--python", "3.12", "--torch", "2.5.1"]
    # What a shell starts in the background ignores interrupts, and so would the command.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        command,
        cwd=root,
        env=os.environ | {"TMPDIR": str(tmp_path / "tmp"), "PIDS": str(pids)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    signal.signal(signal.SIGINT, before)
    while not (pids.is_file() and len(pids.read_text().split()) == 2):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(how)
    assert process.wait(60) == (128 + how if how == signal.SIGTERM else 130)
    assert not list((tmp_path / "tmp").glob("ivhl-*"))
    for pid in pids.read_text().split():
        while _lives(int(pid)):  # it was killed, and ends soon
            time.sleep(0.05)
    assert tree(root).keys() == tree(root).keys() & {"pyproject.toml", "backend.py", *_git(root)}


def _git(root: Path) -> set[str]:
    return {name for name in tree(root) if name.startswith(".git/")}


def _lives(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return False


def test_an_exception_ends_what_uv_does_in_other_threads(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time; time.sleep(600)")
    command = ["run", "--no-project", "--offline", "--python", sys.executable, "slow.py"]
    begun: list[Future[object]] = []

    def interrupted() -> None:
        with uv_pool(2) as pool:
            begun.extend(pool.submit(run_uv, command, cwd=tmp_path) for _ in range(4))
            time.sleep(1)
            raise KeyboardInterrupt

    with waiting_for_nothing(), pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(begun) == 4
    assert all(one.done() for one in begun)


# --- how the project builds

SETUPTOOLS = PYPROJECT.replace("hatchling.build", "setuptools.build_meta")
PDM = PYPROJECT.replace("hatchling.build", "pdm.backend")


@pytest.mark.parametrize(
    ("files", "lines"),
    [
        ({"pyproject.toml": PYPROJECT}, ""),
        ({"pyproject.toml": SETUPTOOLS}, 'include = ["tensor_things", "tensor_things.*"]'),
        ({"pyproject.toml": SETUPTOOLS, "src/x/__init__.py": ""}, ""),
        ({"pyproject.toml": SETUPTOOLS + '[tool.setuptools]\npackages = ["x"]\n'}, ""),
        ({"pyproject.toml": SETUPTOOLS, "setup.cfg": "[options]\npackages = find:\n"}, ""),
        ({"pyproject.toml": SETUPTOOLS, "setup.py": "setup(packages=[])"}, ""),
        ({"pyproject.toml": SETUPTOOLS, "setup.py": "setup(ext_modules=[])"}, "include = "),
        ({"pyproject.toml": PDM}, 'excludes = ["benchmarks"]'),
        ({"pyproject.toml": PDM + '[tool.pdm.build]\nincludes = ["x"]\n'}, ""),
    ],
)
def test_tables_are_added_where_a_backend_looks_for_packages(
    tmp_path: Path, files: dict[str, str], lines: str
) -> None:
    root = project(tmp_path / "demo", PACKAGE | files)
    init(root, ["3.12"], ["2.5.1"])
    added = (root / "pyproject.toml").read_text().removeprefix(files["pyproject.toml"])
    assert lines in added
    assert bool(lines) == ("[tool.setuptools" in added or "[tool.pdm" in added)
    assert lines_for_build(root, "benchmarks") == ""


def test_check_names_a_project_that_builds_otherwise_with_ivhl(tmp_path: Path) -> None:
    root = project(tmp_path / "demo", {"pyproject.toml": SETUPTOOLS, **PACKAGE})
    init(root, ["3.12"], ["2.5.1"])
    path = root / "pyproject.toml"
    path.write_text(path.read_text().replace("[tool.setuptools.packages.find]\ninclude", "#"))
    (problem,) = (one for one in check_project(root).problems if "packages" in one)
    assert 'ivhl init adds: [tool.setuptools.packages.find] include = ["tensor_things"' in problem


def test_packages_that_no_table_can_name_are_asked_for(tmp_path: Path) -> None:
    setup = 'from setuptools import setup\nsetup(name="tensor-things", version="1")\n'
    root = project(tmp_path / "demo", {"setup.py": setup, **PACKAGE})
    with pytest.raises(SpecError, match="names no packages") as refused:
        lines_for_build(root, "benchmarks")
    assert 'include = ["tensor_things", "tensor_things.*"]' in refused.value.hint


def test_files_of_ours_keep_their_permissions(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1")
    path.chmod(0o640)
    assert files.write_whole(path, b"2", tmp_path)
    assert path.stat().st_mode & 0o777 == 0o640
