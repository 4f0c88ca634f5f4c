"""The engine ``hotpath``: its graphs run in every timed call, or the case fails and says why."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from contextlib import closing
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch", reason="torch is only in the cells")

from benchmarks.hotpath.norm_gelu.calls import norm_gelu  # noqa: E402
from ivhl import hotpath  # noqa: E402
from ivhl.measure import rounds, timing  # noqa: E402
from ivhl.measure.case import Measurement  # noqa: E402
from ivhl.measure.effort import Effort  # noqa: E402
from ivhl.measure.failures import CaseError, UnsupportedHereError  # noqa: E402
from ivhl.measure.hotpaths import THRESHOLD, HotPaths  # noqa: E402
from ivhl.measure.job import Job  # noqa: E402
from ivhl.measure.journal import Journal  # noqa: E402
from ivhl.measure.launcher import read_journal  # noqa: E402
from ivhl.measure.sources import reached_sources  # noqa: E402
from ivhl.shipped import PACKED  # noqa: E402
from ivhl.workload import load_workloads, select_cases  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
WORKLOADS = load_workloads("benchmarks")
pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning")

X = torch.linspace(-1.0, 1.0, 24).reshape(4, 6)
W = torch.linspace(-2.0, 1.0, 30).reshape(6, 5)


@pytest.fixture(autouse=True)
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Replace Inductor, which takes seconds: a graph runs as it is. Return those made."""
    made: list[Any] = []

    def compile_graph(module: Any, _inputs: Any, **_options: Any) -> Any:  # noqa: ANN401
        made.append(module)
        return module

    monkeypatch.setattr(torch._inductor, "compile", compile_graph)
    return made


def example(x: Any, w: Any) -> Any:  # noqa: ANN401  (tensors)
    return torch.relu(x @ w).sum()


def heat(function: Callable[..., Any], *inputs: Any) -> tuple[HotPaths, Callable[..., Any]]:  # noqa: ANN401
    hot = HotPaths()
    compiled = hot.compiler(function)
    compiled(*inputs)
    return hot, compiled


def test_the_first_call_compiles_and_those_after_it_run_the_graph(graphs: list[Any]) -> None:
    hot, compiled = heat(example, X, W)
    assert (len(graphs), hot.frames(), hot.graphs()) == (1, (1, 1), (1, 3))
    mark, before = hot.mark(), hot._paths()[0].hits
    for factor in (1.0, 2.0, 3.0):
        found = compiled(factor * X, W)
        assert type(found) is torch.Tensor  # it has its value before the call returns
        assert torch.equal(found, example(factor * X, W))
    assert hot._paths()[0].hits == before + 3
    assert (hot.not_compiled(), hot.fell_back(), hot.since(mark)) == ("", None, "")
    assert len(graphs) == 1


def test_nothing_beside_the_call_is_recorded() -> None:
    hot, compiled = heat(example, X, W)
    for _ in range(2 * THRESHOLD):
        compiled(X, W)
        example(X, W)
        assert torch._C._len_torch_function_stack() == 0
    assert len(hot._paths()) == 1


def test_what_is_refused_is_no_result_of_the_engine() -> None:
    hot, _ = heat(lambda x: torch.fft.fft(x).abs(), X)
    assert "complex numbers are not compiled" in hot.not_compiled()
    hot, _ = heat(lambda x: x * 1.0, X)
    assert "no sequence of operations repeated" in hot.not_compiled()


def test_a_call_that_goes_another_way_is_noticed() -> None:
    ways = [torch.relu]
    hot, compiled = heat(lambda x: ways[-1](x * 2.0) + 1.0, X)
    assert hot.fell_back() is None
    ways.append(torch.tanh)
    assert torch.equal(compiled(X), torch.tanh(X * 2.0) + 1.0)
    found = hot.fell_back()
    assert found is not None
    assert "ran eagerly in 1 of 2 calls: " in found


def test_a_call_of_other_shapes_is_noticed() -> None:
    hot, compiled = heat(example, X, W)
    compiled(X[:2], W)
    found = hot.fell_back()
    assert found is not None
    assert "matmul -> relu -> sum ran eagerly in 1 of 2 calls" in found


def test_a_part_that_runs_by_itself_is_a_graph_break() -> None:
    hot, compiled = heat(lambda x: torch.relu(x * 2.0) + (x * 3.0).sum().item() * x.exp(), X)
    compiled(X)
    assert (hot.not_compiled(), hot.fell_back()) == ("", None)
    assert [(one.text, one.count) for one in hot.graph_breaks()] == [
        ("item: it reads, or changes more than values", 1)
    ]


def test_a_cell_without_ivhl_lacks_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ivhl.hotpath", None)
    with pytest.raises(UnsupportedHereError, match="needs the package ivhl in the cell"):
        HotPaths().compiler(example)


def test_a_release_that_is_too_old_for_hot_paths_is_unsupported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As PyTorch 2.4.1, seen by an import from the beginning.
    monkeypatch.delattr(torch._C._autograd, "_get_current_graph_task_keep_graph")
    monkeypatch.delitem(sys.modules, "ivhl.hotpath")
    with pytest.raises(UnsupportedHereError, match=r"needs PyTorch 2.5 or newer \(found 2\."):
        HotPaths().compiler(example)


def test_a_commit_whose_block_takes_no_function_lacks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Auto:
        def __init__(self, *, threshold: int) -> None:
            self.threshold = threshold

    monkeypatch.setattr(hotpath, "auto", Auto)
    with pytest.raises(CaseError, match="cannot take a function") as raised:
        HotPaths().compiler(example)
    assert raised.value.failure_class == "absent"


def measure(folder: Path) -> dict[str, Any]:
    """Measure the case in this process, and return its findings."""
    (chosen,) = select_cases(
        WORKLOADS, names=["hotpath.norm_gelu"], size="small", variants=["hot"]
    )
    job = Job(
        project="ivhl",
        workloads="benchmarks",
        workload=chosen.workload.name,
        size="small",
        variant="hot",
        effort=Effort(),
        stage="time",
        journal=str(folder / "time.jsonl"),
        references=str(folder / "references.pt"),
    )
    with closing(Journal(folder / "time.jsonl")) as journal:
        Measurement(job, chosen, journal).run()
    return read_journal(folder / "time.jsonl")[1]


def test_a_case_has_counts_and_times(tmp_path: Path) -> None:
    findings = measure(tmp_path)
    facts = findings["compile"]
    assert (facts["frames_total"], facts["frames_ok"], facts["graphs"]) == (1, 1, 1)
    assert facts["calls_captured"] > 10
    assert facts["graph_breaks"] == facts["recompiles"] == []
    assert facts["warm_s"] > 0
    assert findings["compiled"]["samples_s"]


def test_a_case_that_falls_back_while_it_is_timed_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = timing.time_arms

    def spoilt(arms: dict[str, Any], **options: Any) -> Any:  # noqa: ANN401
        found = usual(arms, **options)
        if "compiled" in arms:
            for path in hot[0]:
                path.refuse("planted")
            arms["compiled"]()
        return found

    hot: list[Any] = []
    plain = hotpath.auto.__call__

    def noting(self: hotpath.auto, function: Any) -> Any:  # noqa: ANN401
        hot[:] = [self.sequences]
        return plain(self, function)

    monkeypatch.setattr(hotpath.auto, "__call__", noting)
    monkeypatch.setattr(rounds, "time_arms", spoilt)
    with pytest.raises(CaseError, match=r"ran eagerly in 1 of .* calls: planted") as raised:
        measure(tmp_path)
    assert raised.value.failure_class == "not_compiled"


def test_an_environment_that_switches_hot_paths_off_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("IVHL_AUTO_COMPILE", "0")
    hot, _ = heat(norm_gelu, X, X[0], X[0])
    assert "IVHL_AUTO_COMPILE" in hot.not_compiled()


def test_the_sources_of_a_case_have_hot_paths_in_them() -> None:
    chosen = select_cases(WORKLOADS, names=["hotpath.norm_gelu"])
    naive, hot = (reached_sources(one, "benchmarks", "ivhl", ran=False) for one in chosen)
    assert naive.project != hot.project


def test_no_packaging_file_changes_the_sources_of_a_case(tmp_path: Path) -> None:
    """A release has the packed records and the marker of types; a cell may have neither."""
    # A copy: other tests read the records that ship with this checkout.
    for name in ("ivhl", "benchmarks"):
        ignore = shutil.ignore_patterns("__pycache__", PACKED.name, "py.typed")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignore)
    code = """
        from ivhl.measure.sources import reached_sources
        from ivhl.shipped import PACKED
        from ivhl.workload import load_workloads, select_cases

        def hashes():
            chosen = select_cases(load_workloads("benchmarks"))[::25]
            return [reached_sources(one, "benchmarks", "ivhl", ran=False) for one in chosen]

        before = hashes()
        for path in (PACKED, PACKED.parents[1] / "py.typed"):
            path.write_bytes(b"packed")
        print(PACKED.parents[2], hashes() == before)
    """
    # -S: the checkout, which is installed here, must not be part of the package.
    path = os.pathsep.join((str(tmp_path), sysconfig.get_path("purelib")))
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-c", dedent(code)],
        env={"PYTHONPATH": path}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == [str(tmp_path), "True"]
