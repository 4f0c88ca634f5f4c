"""The run of the observatory: hostile libraries in a real process, and runs that are killed."""

from __future__ import annotations

import json
import sysconfig
import venv
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from ivhl.cli import app, observe, repeat
from ivhl.errors import LockError, UnknownNameError
from ivhl.matrix.spec import CellSpec
from ivhl.measure.effort import Effort
from ivhl.observatory import observing
from ivhl.observatory.observing import LibraryInCell, Observatory, repetition_of
from ivhl.observatory.record import Break, append, read_observed
from ivhl.observatory.rows import read_rows
from ivhl.script.cells import MARK
from ivhl.script.overlay import UnavailableError
from ivhl.script.running import network_can_be_left
from ivhl.script.trying import TargetTried, Trials
from studies.schemas import SCHEMAS
from tests.builders.observatory import failed, make_observed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CELL = CellSpec("3.12", "2.15.0")
LIBRARY = """
import ctypes, os, sys, time, urllib.request
from pathlib import Path
import torch

def good(x):
    return x * 1234.5

def raises():
    raise OSError("no weights in /home/somebody/weights.bin")

def hangs():
    time.sleep(1000)

def downloads():
    urllib.request.urlopen("http://192.0.2.1/weights", timeout=5)

def prints():
    for _ in range(40):
        print("x" * (1 << 20))
    raise ValueError("has printed")

def prints_without_end():
    while True:
        os.write(1, b"x" * (1 << 24))

def forks():
    for _ in range(5):
        if os.fork() == 0:
            time.sleep(1000)
    os.system("sleep 1000 &")
    raise ValueError("has forked")

def allocates():
    return torch.ones(30 << 30, dtype=torch.uint8)

def exits():
    sys.exit("I give up")

def ends():
    os._exit(3)

def crashes():
    ctypes.string_at(0)

def changes_all():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(2)
    os.environ["HOME"] = "/"
    os.chdir("/")
    torch.compile = None
    raise ValueError("has changed")

def writes():
    Path("here").write_text("x")
    Path.home().joinpath("there").write_text("x")
    raise ValueError(f"wrote {Path.cwd() == Path.home()}")

def needs_a_gpu():
    return torch.nn.Linear(3, 3).cuda()

def fails(x):
    return x.reshape(7, 7) if torch.compiler.is_compiling() else x
"""


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for what every first compile needs; the first test that compiles fills it."""
    return tmp_path_factory.mktemp("inductor")


@pytest.fixture
def cell(tmp_path: Path, compiled: Path) -> Path:
    """Return an environment as a cell is, over the packages of this one."""
    folder = tmp_path / "cell"
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    theirs = sysconfig.get_path("purelib")
    (packages / "zz.pth").write_text(f"import site; site.addsitedir({theirs!r})\n")
    (packages / "broken.py").write_text("import a_package_that_is_not_there\n")
    (folder / MARK).write_text(json.dumps({"added": {"demo": "1.2", "numpy": "2"}}))
    (folder / "ivhl-overlay.txt").write_text("demo==1.2 --hash=sha256:00\n")
    (folder / "inductor").symlink_to(compiled)
    return folder


@pytest.fixture
def observatory(tmp_path: Path, cell: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a table, whose cells are all the one of ``cell``."""
    folder = tmp_path / "observatory"
    (folder / "functions").mkdir(parents=True)
    (folder / "functions" / "demo_cases.py").write_text(LIBRARY)

    @contextmanager
    def in_use(
        _: CellSpec, requirements: Sequence[str], overlay: str | None = None
    ) -> Iterator[Path]:
        if overlay is not None:
            (tmp_path / "overlay").write_text(overlay)
        if "vanished" in requirements:
            raise LockError("vanished was not found in the package registry")
        if "pinned" in requirements:
            raise UnavailableError("pinned out: pinned needs torch<2", "pinned out")
        yield cell

    monkeypatch.setattr(observing, "cell_in_use", in_use)
    monkeypatch.setattr(observing, "newest_overlay", lambda *_: "newest")
    monkeypatch.setattr(observing, "overlay_of_its_time", lambda *_: None)
    return folder


def table(folder: Path, **targets: str) -> None:
    cases = "".join(f"{case} = {text}\n" for case, text in targets.items())
    (folder / "libraries.toml").write_text(f"[demo]\n[demo.cases]\n{cases}")


def of_file(function: str) -> str:
    return (
        f'{{ target = "functions/demo_cases.py:{function}", inputs = ["4"], asks = ["forward"] }}'
    )


def ask(folder: Path, **limits: Any) -> tuple[dict[str, Any], list[str]]:  # noqa: ANN401
    told: list[str] = []
    run = Observatory(folder, told.append)
    work = [
        LibraryInCell(cell=CELL, lock="ab", library=one, questions=one.questions)
        for one in read_rows(folder)
    ]
    effort = Effort(**{"deadline_s": 60.0, "memory_limit": 4 << 30} | limits)
    return {one.case: one for one in run.run(work, effort=effort)}, told


def left_behind(folder: Path) -> set[str]:
    """Return the processes of cases of this folder."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if bytes(folder) in path.read_bytes():
                found.add(path.parent.name)
    return found


NAMES = ("demo", "pinned", "vanished")
FAULTS = {
    "raises": ("failed", "import", "no weights in weights.bin"),
    "downloads": ("failed", "import", "urlopen error"),
    "prints": ("failed", "import", "has printed"),
    "forks": ("failed", "import", "has forked"),
    "exits": ("failed", "import", "sys.exit('I give up')"),
    "ends": ("failed", "crash", "exited with status 3"),
    "crashes": ("failed", "crash", "SIGSEGV"),
    "changes_all": ("failed", "import", "has changed"),
    "writes": ("failed", "import", "wrote True"),
    "needs_a_gpu": ("failed", "import", ""),
}


@pytest.mark.full  # a minute of CPU
def test_a_library_that_misbehaves_is_named_and_the_others_go_on(observatory: Path) -> None:
    pytest.importorskip("torch")
    faults = {name: of_file(f"{name}()") for name in FAULTS}
    imports = '{ target = "broken:f", asks = ["forward"] }'
    table(observatory, **faults, imports=imports, absent=of_file("no_such_name"))
    home = set(Path.home().iterdir())
    found, _ = ask(observatory)
    assert left_behind(observatory) == set()
    assert set(Path.home().iterdir()) == home
    for name, (status, kind, says) in FAULTS.items():
        if name == "downloads" and not network_can_be_left():
            continue
        failure = found[name].failure
        assert failure is not None
        assert (found[name].status, failure.failure_class) == (status, kind)
        assert says in failure.message
    assert found["raises"].failure.where == "functions/demo_cases.py:10"
    assert found["raises"].failure.exception == "OSError"
    assert found["imports"].failure.failure_class == "import"
    assert "a_package_that_is_not_there" in found["imports"].failure.message
    assert "no_such_name" in found["absent"].failure.message
    assert "/home" not in (observatory / "records" / "demo.jsonl").read_text()


@pytest.mark.full
def test_a_failure_names_its_places_and_a_target_after_it_works(
    observatory: Path, cell: Path
) -> None:
    pytest.importorskip("torch")
    installed = '{ target = "torch:sin", inputs = ["4"], asks = ["forward"] }'
    table(observatory, fails=of_file("fails"), good=of_file("good"), sin=installed)
    found, _ = ask(observatory)
    assert left_behind(observatory) == set()
    assert found["sin"].status == "works"
    # A process that ends between two cases would take the seconds of both along.
    assert min(one.cpu_s for one in found.values()) > 0
    assert found["fails"].failure.phase == "compile"
    assert found["fails"].failure.where.startswith("functions/demo_cases.py:")
    assert found["fails"].failure.frame.startswith("torch/")
    good = found["good"]
    assert (good.status, good.graphs, good.graph_breaks) == ("works", 1, ())
    assert (good.version, good.inputs) == ("1.2", "4")
    assert 0 <= good.error <= 1
    assert (good.second.inputs, good.second.recompiles) == ("5", 1)
    assert min(good.cpu_s, good.compile_s, good.eager_s, good.compiled_s) > 0
    assert (observatory / "locks" / f"{good.overlay}.txt").read_text().startswith("demo==1.2")
    # The cache of the cell has what each first compile needs, and no code of a case.
    shared = (cell / "inductor").resolve().with_name("inductor-apart")
    sources = [path.read_text() for path in shared.rglob("*.cpp")]
    assert any("2.0" in source for source in sources)  # the throwaway
    assert not any("1234.5" in source for source in sources)
    assert list((shared / "precompiled_headers").rglob("*.h"))


@pytest.mark.full
def test_time_and_memory_of_a_case_have_limits(
    observatory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    table(observatory, hangs=of_file("hangs()"), allocates=of_file("allocates()"))
    found, _ = ask(observatory, deadline_s=20.0)
    assert left_behind(observatory) == set()
    assert found["hangs"].failure.failure_class == "timeout"
    assert found["hangs"].failure.phase == "import"
    assert found["allocates"].failure.failure_class == "out_of_memory"


@pytest.mark.parametrize(
    ("kind", "exception", "load", "cpu_s", "decided"),
    [
        ("timeout", "", 1000.0, 30.0, False),
        ("timeout", "", 1.0, 30.0, False),  # of each CPU: another process may have the same core
        ("timeout", "", 0.5, 30.0, True),
        ("timeout", "", 1000.0, 3.0, True),  # it waits for something else than a CPU
        ("crash", "SIGKILL", 0.0, 30.0, False),
        ("crash", "SIGSEGV", 1000.0, 30.0, True),
    ],
)
def test_a_case_that_others_ended_or_slowed_has_no_verdict(  # noqa: PLR0917
    observatory: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    exception: str,
    load: float,
    cpu_s: float,
    *,
    decided: bool,
) -> None:
    table(observatory, slow=of_file("good"))
    # A killed PID namespace takes its CPU seconds along.
    spent = {"cpu_s": 0.1, "wall_s": 100.0}
    monkeypatch.setattr(observing._Took, "since", lambda _: dict(spent))
    failure = {
        "phase": "compile", "failure_class": kind, "exception": exception, "message": "ended",
        "where": "",
    }  # fmt: skip
    limits: list[float] = []

    def run(_: object, __: object, deadline_s: float, **___: object) -> TargetTried:
        limits.append(deadline_s)
        return TargetTried({"failure": failure}, "", cpu_s)

    monkeypatch.setattr(Trials, "run", run)
    monkeypatch.setattr("os.getloadavg", lambda: (load * 2, 0.0, 0.0))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    found, told = ask(observatory)
    assert limits == [60.0 * min(max(load, 1.0), 4.0)]
    assert [one.cpu_s for one in found.values()] == [cpu_s] * decided
    if not decided:
        assert f"not run: ended, at a load of {load * 2} on 2 CPUs" in told[-1]


@pytest.mark.parametrize(
    "message",
    ["OSError: [Errno 28] No space left on device", "No module named 'torch'"],
)
def test_a_full_disk_and_a_broken_cell_are_no_verdict(
    observatory: Path, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    table(observatory, good=of_file("good"))
    failure = {
        "phase": "compile", "failure_class": "environment", "exception": "builtins.OSError",
        "message": message, "where": "",
    }  # fmt: skip
    monkeypatch.setattr(Trials, "run", lambda *_, **__: TargetTried({"failure": failure}, ""))
    found, told = ask(observatory)
    assert not found
    assert f"not run: {message}" in told[-1]


@pytest.mark.full  # a GiB on disk
def test_what_a_case_prints_has_a_limit(observatory: Path) -> None:
    pytest.importorskip("torch")
    table(observatory, prints=of_file("prints_without_end()"))
    found, _ = ask(observatory)
    assert "File too large" in found["prints"].failure.message


@pytest.mark.full  # 25 s of CPU; the step itself: test_target.py
def test_a_step_of_a_model_has_gradients_of_its_inputs(observatory: Path) -> None:
    torch = pytest.importorskip("torch")
    (observatory / "functions" / "demo_cases.py").write_text(
        "import torch\n"
        "class Other(torch.autograd.Function):\n"
        "    forward = staticmethod(lambda ctx, x: x * 2)\n"
        "    @staticmethod\n"
        "    def backward(ctx, g):\n"
        "        return g * (3 if torch.compiler.is_compiling() else 2)\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.w = torch.nn.Parameter(torch.ones(4))\n"
        "    def forward(self, x, n):\n"
        "        x.mul_(2)\n"
        "        return Other.apply(x) + self.w\n"
    )
    table(
        observatory,
        net='{ target = "functions/demo_cases.py:Net()", inputs = ["2,4", "long 3 <5"], '
        'asks = ["step"] }',
    )
    del torch
    found, _ = ask(observatory)
    assert found["net"].status == "wrong"
    assert "[1][0]" in found["net"].failure.message


UNFIT = {
    "failure": {
        "phase": "import", "failure_class": "import", "exception": "builtins.OSError",
        "message": "OSError: lib.so: undefined symbol: torch_library_impl", "where": "",
    }
}  # fmt: skip
GOOD = {"failure": None, "eager_s": 2.0, "compiled_s": 1.0}


@pytest.mark.parametrize(
    ("second", "status", "version"),
    [(GOOD, "works", "0.9"), (UNFIT, "failed", "1.2"), (None, "failed", "1.2")],
)
def test_where_the_newest_version_is_unfit_the_version_of_the_time_of_the_release_is_asked(  # noqa: PLR0917
    observatory: Path,
    cell: Path,
    monkeypatch: pytest.MonkeyPatch,
    second: dict[str, Any] | None,
    status: str,
    version: str,
) -> None:
    @contextmanager
    def in_use(_: CellSpec, __: Sequence[str], text: str | None) -> Iterator[Path]:
        if text is not None:
            if second is None:
                raise LockError("no wheel of that time")
            (cell / "ivhl-overlay.txt").write_text(text)
            (cell / MARK).write_text(json.dumps({"added": {"demo": "0.9"}}))
        yield cell

    answers: list[dict[str, Any] | None] = [UNFIT, GOOD, second]
    monkeypatch.setattr(Trials, "run", lambda *_, **__: TargetTried(answers.pop(0) or {}, ""))
    older = "demo==0.9 --hash=sha256:00\n"
    monkeypatch.setattr(observing, "overlay_of_its_time", lambda *_: older)
    monkeypatch.setattr(observing, "cell_in_use", in_use)
    table(observatory, unfit=of_file("good"), good=of_file("good"))
    found, told = ask(observatory)
    assert {name: (one.status, one.version) for name, one in found.items()} == {
        "unfit": (status, version),
        "good": ("works", "1.2"),
    }
    assert len(read_observed(observatory / "records", told.append)) == 2
    kept = {path.read_text()[:9] for path in (observatory / "locks").iterdir()}
    assert kept == {"demo==1.2", f"demo=={version}"}


def test_findings_that_no_case_makes_end_nothing(
    observatory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: Iterator[dict[str, Any]] = iter(
        [{"failure": {"phase": 3}}, {"eager_s": "x"}, {"failure": {"failure_class": []}}, {}]
    )
    monkeypatch.setattr(Trials, "run", lambda *_, **__: TargetTried(next(found), ""))
    table(observatory, **{name: of_file("good") for name in "abcd"})
    seen, _ = ask(observatory)
    assert [one.status for one in seen.values()] == ["failed"] * 4
    assert {one.failure.failure_class for one in seen.values()} == {"crash"}


def test_findings_over_a_limit_are_cut(observatory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks = [{"text": "x" * 5000, "count": 1}] * 300
    found = {
        "inputs": "y" * 5000,
        "failure": {
            "phase": "compile", "failure_class": "compile", "exception": "E" * 900,
            "message": "m" * 5000, "where": "w" * 900,
        },
        "frame": "f" * 900,
        "compile": {"graphs": 1, "graph_breaks": breaks, "recompiles": breaks},
        "accuracy": [{"compiled_rmse": 1e60, "limit_rmse": 1e-60}],
    }  # fmt: skip
    monkeypatch.setattr(Trials, "run", lambda *_, **__: TargetTried(found, ""))
    table(observatory, a=of_file("good"))
    seen, told = ask(observatory)
    assert seen["a"].failure.failure_class == "compile"
    assert (len(seen["a"].graph_breaks), seen["a"].recompiles) == (200, 300)
    assert len(read_observed(observatory / "records", told.append)) == 1
    assert told == []


def test_a_library_that_cannot_be_there_has_a_record_and_one_that_vanished_has_none(
    observatory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = {"failure": None, "eager_s": 2.0, "compiled_s": 1.0}
    monkeypatch.setattr(Trials, "run", lambda *_, **__: TargetTried(good, ""))
    (observatory / "libraries.toml").write_text(
        "".join(f'[{name}]\n[{name}.cases]\n{name} = "{name}:f"\n' for name in NAMES)
    )
    seen, told = ask(observatory)
    assert {case: one.status for case, one in seen.items()} == {
        "demo": "works", "pinned": "unavailable",
    }  # fmt: skip
    assert seen["pinned"].why == "pinned out: pinned needs torch<2"
    assert (seen["pinned"].overlay, seen["pinned"].unavailable) == (None, "pinned out")
    (line,) = told
    assert line.startswith("py3.12-torch2.15.0 vanished: not run: ")


def test_a_run_that_is_killed_goes_on_and_asks_nothing_twice(
    observatory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(_: Trials, target: Any, *__: object, **___: object) -> TargetTried:  # noqa: ANN401
        if len(asked) in kills:
            kills.discard(len(asked))
            raise KeyboardInterrupt
        asked.append(target.expression)
        return TargetTried({"eager_s": 2.0, "compiled_s": 1.0}, "")

    kills = {1, 3, 4}
    monkeypatch.setattr(Trials, "run", answer)
    monkeypatch.setattr(observing, "find_interpreter", lambda *_: None)
    names = "abcdef"
    table(observatory, **{name: of_file(name) for name in names})
    cells = [CellSpec("3.12", "2.6.0"), CELL]
    rows = read_rows(observatory)
    told: list[str] = []
    for _ in range(3):
        run = Observatory(observatory, told.append)
        with pytest.raises(KeyboardInterrupt):
            list(run.run(run.work(rows, cells)))
        with (observatory / "records" / "demo.jsonl").open("ab") as file:
            file.write(b'{"schema": "iv')  # the line that it was writing
    run = Observatory(observatory, told.append)
    assert run.estimate(run.work(rows, cells)).runs == 8
    assert list(run.run(run.work(rows, cells)))
    # Newest release first, and each question once in each cell.
    assert asked == [*names, *names]
    lines = (observatory / "records" / "demo.jsonl").read_text().splitlines()
    releases = [json.loads(line)["torch"] for line in lines if line.endswith("}")]
    assert releases == ["2.15.0"] * 6 + ["2.6.0"] * 6
    run = Observatory(observatory, told.append)
    assert run.work(rows, cells) == []
    assert len(run.work(rows, cells, force=True)) == 2
    found = read_observed(observatory / "records", told.append)
    assert len(found) == 12
    # What changes is asked again: here one case's inputs, then a lock that is no longer there.
    table(observatory, **{name: of_file(name) for name in "bcdef"}, a=of_file("a + 0"))
    (only, other) = run.work(read_rows(observatory), cells)
    assert [one.case for one in (*only.questions, *other.questions)] == ["a", "a"]
    list(run.run([only, other]))
    assert run.work(read_rows(observatory), cells) == []
    next((observatory / "locks").iterdir()).unlink()
    assert len(run.work(rows, cells)) == 2


def test_an_estimate_takes_earlier_records_of_the_same_case(
    observatory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = {"eager_s": 2.0, "compiled_s": 1.0}
    monkeypatch.setattr(Trials, "run", lambda *_, **__: TargetTried(good, ""))
    monkeypatch.setattr(observing, "find_interpreter", lambda *_: None)
    table(observatory, a=of_file("a"), b=of_file("b"))
    run = Observatory(observatory, print)
    new = run.work(read_rows(observatory), [CELL])
    assert run.estimate(new).core_s == pytest.approx(50)
    ask(observatory)
    run = Observatory(observatory, print)
    assert run.estimate(new).core_s < 1


def test_the_command_asks_what_is_named_and_prints_each_verdict(
    observatory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = {"eager_s": 2.0, "compiled_s": 1.0}
    bad = {
        "failure": {
            "phase": "compile", "failure_class": "wrong", "exception": "", "message": "off",
            "where": "",
        }
    }  # fmt: skip
    monkeypatch.setattr(
        Trials,
        "run",
        lambda _, target, *__, **___: TargetTried(bad if target.expression == "b" else good, ""),
    )
    monkeypatch.setattr(observing, "find_interpreter", lambda *_: None)
    monkeypatch.setattr(observe, "find_root", lambda: observatory.parent)
    table(observatory, a=of_file("a"), b=of_file("b"))
    run = CliRunner()
    words = ["observe", "--torch", "2.6.0,2.15.0"]
    refused = run.invoke(app, [*words, "dmo"])
    assert isinstance(refused.exception, UnknownNameError)
    assert refused.exception.hint == "did you mean demo?"
    dry = run.invoke(app, [*words, "DEM", "--dry-run"])
    assert dry.output.startswith("4 runs, about 100 s of a core, at most 14.0 GB on disk")
    assert not (observatory / "records").exists()
    assert run.invoke(app, [*words, "--shard", "2/2"]).output.endswith("--force runs all again\n")
    done = run.invoke(app, [*words, "demo"])
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert lines[1].startswith("1/4 py3.12-torch2.15.0 demo a forward: works, 2.00x as fast")
    assert lines[4] == "4/4 py3.12-torch2.6.0 demo b forward: wrong in phase compile: off"
    assert lines[5] == "works 2, wrong 2"
    table(observatory, a=of_file("a"), b='{ inputs = ["3"] }')
    wrong = run.invoke(app, [*words, "--dry-run"])
    assert "left out: libraries.toml: [demo.cases] b: target: must be there" in wrong.output
    assert isinstance(run.invoke(app, [*words, "demo"]).exception, UnknownNameError)
    table(observatory, a=of_file("a"), b=of_file("b"))
    assert run.invoke(app, words).output.endswith("--force runs all again\n")
    assert "works 2" in run.invoke(app, [*words, "--force"]).output
    assert (observatory.parent / "overlay").read_text() == "newest"


def test_a_record_is_repeated_in_an_environment_of_both_its_locks(
    observatory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = {"phase": "compile", "failure_class": "wrong", "exception": "", "message": "off"}
    found: list[dict[str, Any]] = [{"eager_s": 2.0, "compiled_s": 1.0}]
    monkeypatch.setattr(Trials, "run", lambda *_, **__: TargetTried(found[-1], ""))
    monkeypatch.setattr(observing, "find_interpreter", lambda *_: None)
    monkeypatch.setattr(observe, "find_root", lambda: observatory.parent)
    monkeypatch.setattr(repeat, "find_root", lambda: observatory.parent)
    table(observatory, a=of_file("a"), b=of_file("b"))
    run = CliRunner()
    assert run.invoke(app, ["observe", "--torch", "2.6.0,2.15.0"]).exit_code == 0
    kept = (observatory / "records" / "demo.jsonl").read_text()
    words = ["repeat", "demo/a", "--torch", "2.6"]
    done = run.invoke(app, words)
    assert done.exit_code == 0
    assert done.output.startswith("demo/a/forward in py3.12-torch2.6.0, recorded 2")
    early = make_observed("demo", case="a", torch="2.16.0rc1")
    append(observatory / "records", early)
    newest = run.invoke(app, ["repeat", "demo/a"])  # a candidate only by its name
    assert newest.output.startswith("demo/a/forward in py3.12-torch2.15.0, recorded 2")
    kept = (observatory / "records" / "demo.jsonl").read_text()
    assert done.output.endswith("reproduces: the same verdict and graph breaks\n")
    assert (observatory.parent / "overlay").read_text() == "demo==1.2 --hash=sha256:00\n"
    found.append({"failure": bad | {"where": ""}})
    done = run.invoke(app, [*words, "--json"])
    assert done.exit_code == 7
    SCHEMAS["repetition"].validate_json(done.stdout)
    assert json.loads(done.stdout)["kind"] == "fails"
    assert (observatory / "records" / "demo.jsonl").read_text() == kept
    assert "is part of 2 names" in str(run.invoke(app, ["repeat", "demo/"]).exception)
    assert "has no --commit" in str(run.invoke(app, [*words, "--commit", "HEAD"]).exception)
    (lock,) = (observatory / "locks").iterdir()
    lock.write_text("another==1 --hash=sha256:00\n")
    damaged = run.invoke(app, words)
    assert damaged.exit_code == 8
    assert f"locks/{lock.name}: is gone, or not what was written" in damaged.output
    assert [*(observatory / "locks").iterdir()] == [lock]
    table(observatory, a=of_file("a + 0"), b=of_file("b"))
    refused = run.invoke(app, words)
    assert "the row of its case has changed since" in str(refused.exception)


@pytest.mark.parametrize(
    ("now", "kind"),
    [
        ({}, "unchanged"),
        ({"graph_breaks": (Break(text="x", count=2),)}, "degraded"),
        ({"graph_breaks": ()}, "fixed"),
        (failed("m"), "fails"),
    ],
)
def test_a_second_run_differs_in_verdict_or_graph_breaks(now: dict[str, Any], kind: str) -> None:
    first = make_observed(graph_breaks=(Break(text="x", count=1),))
    changes: dict[str, Any] = {"graph_breaks": first.graph_breaks, "compile_s": 9.0} | now
    second = make_observed(**changes)
    assert repetition_of(first, second).kind == kind
