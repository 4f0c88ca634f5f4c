"""What is attacked, with what, and which errors are answers: any other exception is a defect."""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from markdown_it import MarkdownIt

from ivhl.asv.configuration import load_configuration
from ivhl.cli.gate import code
from ivhl.errors import IvhlError, LockError, ResultsError, SpecError
from ivhl.fleet.check import Known, Offered, read_line, refusal
from ivhl.fleet.sources import Refused, SourceLine
from ivhl.image.container import read_message
from ivhl.matrix.locks import lock_mistakes, lock_state
from ivhl.matrix.project import load_project
from ivhl.matrix.spec import CellSpec, load_matrix
from ivhl.measure.launcher import failure_of, read_journal
from ivhl.measure.outcome import checked_record
from ivhl.measure.process import Ending
from ivhl.measure.run import Run
from ivhl.records import answers
from ivhl.records.files import append_line, record_file
from ivhl.records.lines import MOST_NAMED, read_plain
from ivhl.records.reader import read_record, records_in
from ivhl.records.record import to_json
from ivhl.records.text import visible
from ivhl.tracker.changes.compare import compare
from ivhl.tracker.changes.gate import judge
from ivhl.tracker.changes.regressions import find_changes
from ivhl.tracker.store.course import MemoryHistory
from ivhl.tracker.store.entries import recorded
from ivhl.tracker.store.index import Index
from ivhl.tracker.store.spread import Spreads
from ivhl.tracker.views.broken import without_broken
from ivhl.tracker.views.project import State, rows_of
from ivhl.workload import Case, Variant, Workload, load_workloads
from studies.stored import Loaded, load_records
from tests.builders.fleet import make_fleet_project
from tests.builders.records import COMMIT, EMPTY_WORKLOAD, make_failure, make_record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hypothesis.strategies import SearchStrategy


# Values at which programs break: bounds of numbers, empty and endless texts, signs that are obeyed.
NASTY: SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 2**31, 2**53 + 1, 2**63, 2**64, 10**30, 10**400]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 5e-324, 1e-300, 1e-12, 1e-9, 1e9, 1e75, 1e308, -1.0]),
    st.text(max_size=40),
    st.sampled_from(
        ["", " ", ".", "..", "../up", "/", "x.json", "\x00", "\x1b[2J", "\u202e", "a" * 300,
         "\U0001f600" * 90, "<img src=x onerror=alert(1)>", "0001-01-01T00:00:00+14:00", "cpu",
         "2099-01-01T00:00:00+00:00", "cuda", "1", "nan", "__proto__", "=1+1", "%s%n", "CON"]
    ),
    st.lists(st.integers(), max_size=4),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
)  # fmt: skip
_LONGEST_PART = 240  # of a path; ivhl adds to it while it writes
_SEEDS = (make_record(), make_failure(), make_failure("wrong", phase="accuracy"))
_MATRIX = """\
exclude-newer = 2026-11-15
platform = "linux"
also = ["flit_core==3.12.0"]
python = [{version = "3.12"}, {version = "3.13"}]
torch = [{release = "2.5.1", tier = "default"}, {release = "2.6.0", tier = "extended"}]
forced = [{torch = "2.6.0", package = "numpy", pythons = ["3.12"], reason = "a reason"}]
"""
_LOCK = """\
# Matrix digest: 0123456789abcdef

torch==2.6.0 \\
    --hash=sha256:{0}
    # via matrix.toml
numpy==2.1.0 \\
    --hash=sha256:{0}
    # via
    #   torch
""".format("ab" * 32)


@st.composite
def changed_json(draw: Any, seeds: tuple[Mapping[str, Any], ...]) -> Any:  # noqa: ANN401
    """Draw a document of JSON with up to four values replaced, removed or added."""
    data = json.loads(json.dumps(draw(st.sampled_from(seeds))))
    for _ in range(draw(st.integers(0, 4))):
        inner = data
        while isinstance(inner, dict | list) and inner:
            keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
            key = draw(st.sampled_from(keys))
            deeper = isinstance(inner[key], dict | list) and inner[key]
            if deeper and draw(st.integers(0, 3)):
                inner = inner[key]
                continue
            match draw(st.integers(0, 5)):
                case 0:
                    del inner[key]
                case 1 if isinstance(inner, dict):
                    inner[draw(st.text(max_size=8))] = draw(NASTY)
                case _:
                    inner[key] = draw(NASTY)
            break
    return data


@st.composite
def changed_bytes(draw: Any, seed: bytes) -> bytes:  # noqa: ANN401
    """Draw the bytes with up to six places changed, cut out or repeated."""
    data = bytearray(seed)
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        length = draw(st.integers(0, 20))
        match draw(st.integers(0, 3)):
            case 0:
                data[at : at + length] = b""
            case 1:
                data[at:at] = data[at : at + length] * draw(st.integers(1, 50))
            case 2:
                data[at : at + 1] = draw(st.binary(max_size=8))
            case _:
                data[at:at] = draw(
                    st.sampled_from(
                        [b"[" * 3000, b"9" * 5000, b"\x00", b'"', b"\xff", b"{", b"\n"]
                    )
                )
    return bytes(data)


@cache
def _known() -> Known:
    return Known(
        project="ivhl",
        workloads={"ops.gp_evolve": 1, "ops.other": 3},
        commits=frozenset({COMMIT}),
        locks=_Locks(),
        machines=_Machines(),
        blocked=frozenset(),
    )


class _Locks(dict[str, Any]):
    def __missing__(self, key: str) -> Any:  # noqa: ANN401
        return {"ab" * 32: {"torch": "2.6.0"}}


class _Machines(dict[str, Any]):
    def __missing__(self, key: str) -> Any:  # noqa: ANN401
        return {}


def attack_records(document: Any) -> None:  # noqa: ANN401  (JSON)
    """Read, check and show a record beside a good one: what is accepted is shown everywhere."""
    try:
        line = json.dumps(document).encode()
    except ValueError:  # Python writes no integer of 5,000 digits
        return
    read = read_line(SourceLine("x:1", line))
    if isinstance(read, Refused) or refusal(read, _known()):
        # Nothing is shown of it, but a results folder may hold it all the same.
        _show(_through_a_file(line, b""))
        return
    assert isinstance(read, Offered)
    assert (
        len(
            record_file(
                Path(), read.record.machine.name, read.record.commit, read.record.cell.id
            ).name.encode()
        )
        < 240
    )
    loaded = _through_a_file(line, to_json(_SEEDS[0]).encode())
    assert read.record in (*loaded.records, *loaded.replaced)
    _show(loaded)


def attack_files(
    content: list[bytes], ending: bytes, repeats: int, damage: Callable[[bytes], bytes]
) -> None:
    """Read a file of lines beside a good one: all readers take the same lines."""
    data = ending.join(content) * repeats
    with tempfile.TemporaryDirectory() as folder:
        records = Path(folder, "box", "records")
        append_line(records / "good.jsonl", to_json(_SEEDS[0]))
        plain = records / "x.jsonl"
        plain.write_bytes(damage(data))
        loaded = load_records(Path(folder))
        assert _SEEDS[0] in (*loaded.records, *loaded.replaced)
        assert len(loaded.problems) <= MOST_NAMED
        assert all(len(problem.rule) < 2000 for problem in loaded.problems)
        index = Index(Path(folder), ":memory:")
        try:
            index.update()
            assert list(map(str, index.problems)) == list(map(str, loaded.problems))
            with plain.open("ab") as file:
                file.write(b"\nx\n")
            index.update()
            again = load_records(Path(folder))
            assert list(map(str, index.problems)) == list(map(str, again.problems))
        finally:
            index.close()
        mine = {record for _, _, record in answers.read_records(plain)}
        with suppress(ResultsError):
            found = [one for _, one in records_in(read_plain(plain))]
            assert mine == {one for one in found if not isinstance(one, str)}


def _through_a_file(*lines: bytes) -> Loaded:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "box", "records", "x.jsonl")
        for line in filter(None, lines):
            append_line(path, line.decode())
        loaded = load_records(Path(folder))
        index = Index(Path(folder), ":memory:")
        try:
            index.update()
            assert len(index.problems) == len(loaded.problems)
            index.newest((COMMIT,))
        finally:
            index.close()
        return loaded


def _show(loaded: Loaded) -> None:
    records = loaded.records
    spreads = Spreads((*records, *loaded.replaced))
    state = State(
        name="x", recorded=tuple(map(recorded, records)), problems=(), cells=(), releases=None,
        unavailable={}, workloads=(), cases=(), commit_order=(COMMIT,), spreads=spreads,
    )  # fmt: skip
    assert without_broken(state).problems == ()
    rows = rows_of(state)
    json.dumps([row.to_dict() for row in rows], allow_nan=False)
    json.dumps([asdict(record) for record in records], allow_nan=False)
    judge(records, {COMMIT}, {record.commit for record in records}, (), spreads)
    compare(list(records), list(records), "results", spreads)
    find_changes(MemoryHistory(records), spreads, (COMMIT,))


def attack_journals(compiled: Any, timed: Any, tail: bytes) -> None:  # noqa: ANN401  (JSON)
    """Make a record of what the code under test wrote into the journals: every reader takes it."""
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for number, findings in enumerate((compiled, timed)):
            path = Path(folder, f"{number}.jsonl")
            with suppress(ValueError):  # Python writes no integer of 5,000 digits
                line = json.dumps({"phase": "timing", "findings": findings}).encode()
                path.write_bytes(line + b"\n" + tail)
            phase, read = read_journal(path)
            ending = Ending(how="exit", code=0, seconds=1.0, peak_bytes=1)
            found.append((read, failure_of(phase, read, ending, path)))
        (compiled, failure), (timed, failed) = found
        record = checked_record(
            _RUN, _CASE, (compiled, [timed]), failure or failed,
            duration_s=1.0, load=0.1, in_cell=False,
        )  # fmt: skip
        read_record(to_json(record).encode())


def attack_matrix(text: bytes) -> None:
    """Read a matrix: it is valid, or the error has a sentence."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "matrix.toml")
        path.write_bytes(text)
        with suppress(SpecError):
            matrix = load_matrix(path)
            matrix.cells(tier="extended")
            assert all(matrix.tier(cell) for cell in matrix.cells(tier="extended"))


@cache
def _project() -> Path:
    root = Path(tempfile.mkdtemp(prefix="ivhl-fuzz-"))
    make_fleet_project(root)
    return root


def attack_configuration(text: bytes) -> None:
    """Read asv's configuration."""
    (_project() / "asv.conf.json").write_bytes(text)
    with suppress(IvhlError):
        json.dumps(load_configuration(_project()))


def attack_project(text: bytes) -> None:
    """Read ``pyproject.toml``."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pyproject.toml").write_bytes(text)
        with suppress(SpecError):
            load_project(Path(folder))


def attack_lock(text: bytes) -> None:
    """Read a lock, and what is wrong in it."""
    matrix = load_matrix(_project() / "envs" / "matrix.toml")
    with tempfile.TemporaryDirectory() as folder:
        cell = CellSpec("3.12", "2.6.0")
        path = Path(folder, "envs", "locks", f"{cell.id}.txt")
        path.parent.mkdir(parents=True)
        path.write_bytes(text)
        with suppress(LockError):
            assert isinstance(lock_mistakes(lock_state(Path(folder), cell), matrix), list)


def attack_messages(line: bytes) -> None:
    """Read what a container printed."""
    message = read_message(line)
    assert message is None or all(isinstance(value, str) for value in message.values())


def attack_output(text: str) -> None:
    """Show a text on a terminal and in a summary."""
    assert not any(ord(sign) < 32 and sign not in "\n\t" for sign in visible(text))
    written = code(text)
    kinds = {
        inner.type
        for token in MarkdownIt("commonmark").parse(written)
        for inner in (token, *(token.children or ()))
    }
    assert not kinds & {"link_open", "image", "em_open", "strong_open", "code_inline"}


def attack_declarations(fields: dict[str, Any], variant: dict[str, Any]) -> None:
    """Check a declaration with values of any type."""
    good = {name: getattr(EMPTY_WORKLOAD, name) for name in EMPTY_WORKLOAD.__slots__}
    made = Workload(**(good | {"variants": (Variant(**({"name": "a"} | variant)),)} | fields))
    sys.modules["fuzzed_workloads"] = SimpleNamespace(WORKLOADS=(made,))  # type: ignore[assignment]
    with suppress(SpecError):
        load_workloads("fuzzed_workloads:WORKLOADS")


_ARM = {"calls": 3, "samples_s": [1e-3] * 8, "wall_s": [1e-3] * 8, "cpu_s": [1e-3] * 8}
_COMPILED = {
    "sources": "ab" * 32, "benchmark": "cd" * 32, "device": "cpu", "torch_full": "2.6.0+cpu",
    "compile": {"cold_s": 1.0, "graph_breaks": [], "recompiles": [{"text": "x", "count": 1}],
                "frames_total": 1, "frames_ok": 1, "graphs": 1, "calls_captured": 3},
    "warnings": [{"text": "UserWarning: x", "count": 2}], "phase_s": {"compile": 1.5}, "done": True,
}  # fmt: skip
_TIMED = {
    "clock": "cpu", "draws": 3, "calibration": {"compute_s": [1.0], "memory_s": [1.0]},
    **dict.fromkeys(("eager", "eager_again", "compiled"), _ARM),
    "compile": {"warm_s": 1.0, "warm_cpu_s": 1.0, **_COMPILED["compile"]},  # type: ignore[dict-item]
    "memory": {"eager_peak": 5, "compiled_peak": None}, "disturbed": "", "passes": None,
    "accuracy": [{"output": "y", "scale": 1.0, "eager_max": 0.1, "eager_rmse": 0.1,
                  "compiled_max": 0.1, "compiled_rmse": 0.1, "limit_rmse": 0.2, "passed": True}],
    "failure": {}, "phase_s": {"timing": 1.0}, "warnings": [], "done": True,
}  # fmt: skip
_RUN = Run(
    project="demo", commit=COMMIT, workloads="m:W", cell=_SEEDS[0].cell, machine=_SEEDS[0].machine,
    results="r", scratch="s", repeat="again",
)  # fmt: skip
_CASE = Case(workload=EMPTY_WORKLOAD, size="small", variant=Variant(name="a", call="m:f"))
_RECORDS = tuple(json.loads(to_json(record)) for record in _SEEDS)
_CONF = {
    "version": 1, "project": "demo", "repo": ".", "branches": ["main"], "plugins": [".ivhl.asv"],
    "environment_type": "locked", "env_dir": ".asv/env", "html_dir": "site", "results_dir": "r",
    "install_timeout": 5, "regressions_thresholds": {".*": 0.1}, "include": [{"python": "3.12"}],
}  # fmt: skip
_PYPROJECT = (
    '[project]\nname = "demo"\n[tool.ivhl]\nworkloads = "tests.builders.fleet:WORKLOADS"\n'
)
_LINE = to_json(_SEEDS[0]).encode()


def _as_line(document: Any) -> bytes:  # noqa: ANN401  (JSON)
    try:
        return json.dumps(document).encode()
    except ValueError:  # Python writes no integer of 5,000 digits
        return b"9" * 5000


_NAMES = st.one_of(
    st.sampled_from(
        ["a/records/x.jsonl", "../x.jsonl", "/x.jsonl", "C:\\x.jsonl", ".x/y.jsonl", "a\x00.jsonl"]
    ),
    st.text(max_size=30).map(lambda text: f"{text}.jsonl"),
)  # fmt: skip
_DAMAGE = st.one_of(
    st.just(lambda data: data),
    st.tuples(st.integers(0, 2000), st.binary(min_size=1, max_size=6)).map(
        lambda change: (
            lambda data: data[: change[0]] + change[1] + data[change[0] + len(change[1]) :]
        )
    ),
    st.integers(0, 2000).map(lambda cut: lambda data: data[:cut]),
)
# Name to the function that is attacked and the strategies of its arguments.
TARGETS: dict[str, tuple[Callable[..., None], tuple[SearchStrategy[Any], ...]]] = {
    "records": (attack_records, (changed_json(_RECORDS),)),
    "files": (
        attack_files,
        (
            st.lists(
                st.one_of(
                    changed_bytes(_LINE),
                    st.binary(max_size=40),
                    changed_json(_RECORDS).map(_as_line),
                    st.sampled_from([b"", b"x", b"{}", b"[" * 3000, b"\xef\xbb\xbf", b"\r"]),
                ),
                max_size=5,
            ),
            st.sampled_from([b"\n", b"\r\n", b"\n\n", b"\x0b", b""]),
            st.sampled_from([1, 1, 2, 40, 1000]),
            _DAMAGE,
        ),
    ),
    "journals": (
        attack_journals,
        (
            changed_json((_COMPILED,)),
            changed_json((_TIMED,)),
            changed_bytes(b'{"findings": {"failure": {"phase": "timing"}}}'),
        ),
    ),
    "matrix": (attack_matrix, (changed_bytes(_MATRIX.encode()),)),
    "configuration": (
        attack_configuration,
        (
            st.one_of(
                changed_bytes(json.dumps(_CONF).encode()),
                changed_json((_CONF,)).map(lambda data: json.dumps(data).encode()),
            ),
        ),
    ),
    "project": (attack_project, (changed_bytes(_PYPROJECT.encode()),)),
    "lock": (attack_lock, (changed_bytes(_LOCK.encode()),)),
    "messages": (
        attack_messages,
        (changed_bytes(b'{"event": "case-finished", "case": "a/b/c", "record": "{}"}'),),
    ),
    "output": (attack_output, (st.text(max_size=200),)),
    "declarations": (
        attack_declarations,
        (
            st.dictionaries(st.sampled_from(Workload.__slots__), NASTY, max_size=3),
            st.dictionaries(st.sampled_from(Variant.__slots__), NASTY, max_size=2),
        ),
    ),
}
