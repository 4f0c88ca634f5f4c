"""Peers can be correct, wrong or missing; all compute the same operation."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest
from packaging.utils import canonicalize_name

pytest.importorskip("torch", reason="torch is only in the cells")
pytest.importorskip("numpy", reason="some peers are written with NumPy")
import numpy as np
import torch

from benchmarks.condensate import gp_evolve
from benchmarks.condensate.gp_evolve.reference import reference as gp_reference
from benchmarks.mera import tensor_network
from benchmarks.triangulation import cdt_sweep
from benchmarks.triangulation.cdt_sweep import Size as LatticeSize
from ivhl.compile import compile_mode
from ivhl.measure.draws import cast
from ivhl.measure.timing import Schedule
from ivhl.workload import Workload, resolve
from studies.peers import fourier, long_step, sweep_numpy, sweep_python
from studies.peers.__main__ import choose, main, parser
from studies.peers.compare import PeerRow, compare
from studies.peers.judging import NAIVE, flatten
from studies.peers.networks import grid_equation, make_torch
from studies.peers.recurrent import make_cell, make_sequence
from studies.peers.report import export, print_table
from studies.peers.suite import LONG_DT, OPERATIONS, SUITES, Peer, PeerComparison

if TYPE_CHECKING:
    from collections.abc import Callable

SHORT = Schedule(block_s=1e-4, total_s=0.01, min_rounds=9, max_rounds=9)
COMPARISONS = {comparison.workload.name: comparison for comparison in OPERATIONS}


def draw(size: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    return (torch.randn(size, dtype=torch.float64, generator=generator),)


def double(x: torch.Tensor) -> torch.Tensor:
    return x + x


def make_double(x: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: double(x)


def make_array(x: torch.Tensor) -> Callable[[], Any]:
    array = x.numpy()
    return lambda: array * np.float32(2.0)


def make_triple(x: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: 3.0 * x


def make_infinite(x: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: x / 0.0


def make_broken(_: torch.Tensor) -> Callable[[], torch.Tensor]:
    def call() -> torch.Tensor:
        raise RuntimeError("no such\n  instruction")

    return call


def make_spoiled(x: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Return correct results at first, and wrong ones soon after."""
    results = iter([2.0] * 10)
    return lambda: next(results, 3.0) * x


WORKLOAD = Workload(
    name="ops.double",
    version=1,
    title="Twice a number",
    sizes={"small": 100},
    default_size="small",
    make_inputs=f"{__name__}:draw",
    eager=f"{__name__}:double",
    reference=f"{__name__}:double",
    outputs=("twice",),
    variants=(),
)


def named(make: str, **about: Any) -> Peer:  # noqa: ANN401
    return Peer(name=make, make=f"{__name__}:make_{make}", **about)


def rows_of(*peers: Peer, ours: Peer | None = None) -> dict[str, PeerRow]:
    comparison = PeerComparison(workload=WORKLOAD, ours=ours or named("double"), peers=peers)
    return {row.name: row for row in compare(comparison, "small", schedule=SHORT)}


def test_a_correct_peer_has_times_an_error_and_a_ratio() -> None:
    rows = rows_of(named("array", packages=("numpy", "no-such-package")))
    assert list(rows) == ["double", NAIVE, "array"]
    row, ours = rows["array"], rows["double"]
    assert row.status == "ok"
    assert row.arm is not None
    assert ours.arm is not None
    assert len(row.arm.samples_s) == len(ours.arm.samples_s) >= 9
    assert row.speedup is not None
    # The ratio is the peer's time over ours: above 1 if ours is faster.
    ratios = [a / b for a, b in zip(row.arm.samples_s, ours.arm.samples_s, strict=True)]
    assert row.speedup.value == pytest.approx(median(ratios))
    assert row.error == pytest.approx(0.0, abs=1e-6)
    assert row.packages == {"numpy": np.__version__, "no-such-package": "not installed"}
    assert ours.speedup is None


@pytest.mark.parametrize("make", ["triple", "infinite", "spoiled"])
def test_a_wrong_peer_has_neither_time_nor_ratio(make: str) -> None:
    row = rows_of(named(make))[make]
    assert row.status == "wrong"
    assert row.reason.startswith("relative error against float64: ")
    assert (row.arm, row.speedup) == (None, None)


def test_a_missing_or_broken_peer_is_a_row_with_a_reason() -> None:
    missing = Peer(name="missing", make="no_such_library_at_all:make")
    rows = rows_of(missing, named("broken"), named("array"))
    assert rows["missing"].status == rows["broken"].status == "unavailable"
    assert rows["missing"].reason == (
        "ModuleNotFoundError: No module named 'no_such_library_at_all'"
    )
    assert rows["broken"].reason == "RuntimeError: no such instruction"
    assert rows["array"].status == "ok"


@pytest.mark.parametrize("make", ["triple", "broken"])
def test_without_our_result_peers_have_times_but_no_ratios(make: str) -> None:
    rows = rows_of(named("array"), ours=named(make))
    assert rows["array"].arm is not None
    assert {row.speedup for row in rows.values()} == {None}


def test_without_a_reference_all_rows_are_unavailable() -> None:
    comparison = PeerComparison(
        workload=COMPARISONS["ops.gp_evolve"].workload, ours=named("double"), peers=()
    )
    rows = compare(comparison, "no such size", schedule=SHORT)
    assert {row.status for row in rows} == {"unavailable"}
    assert "KeyError: 'no such size'" in rows[0].reason


def test_the_table_and_the_export_hold_every_row(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = list(
        rows_of(named("array", note="of NumPy"), named("broken"), named("infinite")).values()
    )
    print_table(rows)
    text = capsys.readouterr().out
    assert text.count("ops.double/small") == 1
    assert "(1) of NumPy" in text
    assert "(2) RuntimeError: no such instruction" in text
    assert "(3) relative error against float64: not finite" in text
    export(tmp_path / "peers.json", {"suite": "ops"}, rows)
    data = json.loads((tmp_path / "peers.json").read_text(encoding="utf-8"))
    assert data["schema"] == "ivhl.peers/1"
    assert [row["status"] for row in data["rows"]] == ["ok", "ok", "ok", "unavailable", "wrong"]
    assert len(data["rows"][2]["arm"]["samples_s"]) >= 9


def test_sizes_and_operations_are_chosen_by_name() -> None:
    arguments = ["--size", "small", "--size", "large", "--operation", "vortex"]
    chosen = choose(parser().parse_args(arguments))
    assert [(c.workload.name, size) for c, size in chosen] == [
        ("ops.vortex_field", "small"),
        ("ops.vortex_field", "large"),
    ]
    assert len(choose(parser().parse_args([]))) == len(OPERATIONS)
    everything = choose(parser().parse_args(["mlff"]))
    assert [(c.workload.name, size) for c, size in everything] == [
        ("mlff.models", "H2O"),
        ("mlff.models", "CH4"),
        ("mlff.models", "C6H6"),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mlf"], "error: unknown suite of peers 'mlf'\nnext: did you mean"),
        (["--operation", "vortx"], "error: unknown operation 'vortx'\nnext: did you mean"),
        (["--size", "huge"], "error: unknown size 'huge'"),
    ],
)
def test_an_error_is_printed_as_a_message(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.parametrize("suite", SUITES)
def test_the_lock_of_a_suite_is_hashed_and_has_the_torch_of_the_newest_cell(suite: str) -> None:
    pytest.importorskip("uv", reason="locks are read where the project itself is installed")
    from ivhl.matrix.locks import lock_state, parse_lock  # noqa: PLC0415
    from ivhl.matrix.project import load  # noqa: PLC0415

    root, matrix = load(Path(__file__).parent)
    text = (root / "envs" / "peers" / f"{suite}.txt").read_text(encoding="utf-8")
    pins = {pin.name: pin for pin in parse_lock(text)}
    assert all(pin.hashes for pin in pins.values())
    assert "://" not in text
    (cell,) = matrix.cells(pythons=matrix.pythons[:1], releases=matrix.releases("default")[-1:])
    newest = lock_state(root, cell)
    for name in newest.closure("torch"):
        assert pins[name].version == newest.packages[name]
    asked = {n for c in SUITES[suite].comparisons for peer in c.peers for n in peer.packages}
    assert {canonicalize_name(name) for name in asked} <= set(pins)


def inputs_of(comparison: PeerComparison, size: Any) -> tuple[Any, ...]:  # noqa: ANN401
    workload = comparison.workload
    drawn = resolve(workload.make_inputs)(size, torch.Generator().manual_seed(7))
    return tuple(cast(drawn, getattr(torch, workload.dtype), torch.device("cpu")))


@pytest.mark.parametrize("name", COMPARISONS)
def test_our_functions_agree_with_the_reference(name: str) -> None:
    comparison = COMPARISONS[name]
    inputs = inputs_of(comparison, comparison.workload.sizes["small"])
    exact = cast(inputs, torch.float64, torch.device("cpu"))
    references = flatten(resolve(comparison.workload.reference)(*exact))
    naive = flatten(resolve(comparison.workload.eager)(*inputs))
    ours = comparison.ours
    with compile_mode(None):
        outputs = flatten(resolve(ours.make)(*inputs, **ours.arguments)())
    for output, eager, reference in zip(outputs, naive, references, strict=True):
        scale = float(reference.abs().max())
        for result in (output, eager):
            assert float((result - reference).abs().max()) <= 1e-5 * scale


def test_the_long_step_equals_its_reference_in_float64() -> None:
    phi = 0.1 * torch.randn(5, 5, 5, dtype=torch.complex128)
    torch.testing.assert_close(long_step.evolve(phi), long_step.reference(phi))


@pytest.mark.parametrize("make", ["make_numpy", "make_scipy", "make_pyfftw"])
@pytest.mark.parametrize(
    ("dt", "reference"), [(gp_evolve.DT, gp_reference), (LONG_DT, long_step.reference)]
)
def test_strang_steps_by_fourier_transforms_agree_with_the_reference(
    make: str, dt: float, reference: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    if make != "make_numpy":
        pytest.importorskip(
            {"make_scipy": "scipy", "make_pyfftw": "pyfftw"}[make],
            reason="is in the environment of the peers",
        )
    (phi,) = inputs_of(COMPARISONS["ops.gp_evolve"], gp_evolve.Size(12))
    before = phi.clone()
    call = getattr(fourier, make)(phi, dt=dt)
    for _ in range(2):
        result = torch.from_numpy(call())
        assert result.dtype == torch.complex64
        exact = reference(phi.to(torch.complex128)).to(torch.complex64)
        torch.testing.assert_close(result, exact, rtol=0.0, atol=1e-6)
    assert torch.equal(phi, before)


@pytest.mark.parametrize("peer", [sweep_numpy, sweep_python])
@pytest.mark.parametrize("size", [LatticeSize(1, 2, 3, 400), LatticeSize(64, 4, 5, 200)])
def test_sweeps_end_at_the_lattices_of_the_reference(peer: Any, size: LatticeSize) -> None:  # noqa: ANN401
    comparison = COMPARISONS["ops.cdt_sweep"]
    inputs = inputs_of(comparison, size)
    before = [values.clone() for values in inputs]
    call = peer.make_sweep(*inputs)
    expected = resolve(cdt_sweep.WORKLOAD.reference)(*inputs)
    for _ in range(2):
        for result, exact in zip(call(), expected, strict=True):
            assert torch.equal(torch.as_tensor(result).double(), exact)
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True))
    # Enough moves that every kind is accepted at least once.
    start = resolve(cdt_sweep.WORKLOAD.reference)(inputs[0], inputs[1][:0], inputs[2])
    assert not torch.equal(expected[1], start[1])


@pytest.mark.parametrize("n", [2, 3])
def test_the_grid_equals_that_of_the_workload(n: int) -> None:
    comparison = COMPARISONS["ops.tensor_network"]
    tensors = inputs_of(comparison, tensor_network.Size(n, 3))
    exact = resolve(comparison.workload.reference)(*tensors).to(torch.complex64)
    torch.testing.assert_close(make_torch(*tensors)(), exact)


def test_a_grid_with_too_many_indices_for_torch_is_an_error() -> None:
    assert len(set(grid_equation(6)) - set(",->")) == 61
    with pytest.raises(ValueError, match=r"torch\.einsum has 52 letters, this network 61 indices"):
        make_torch(*[torch.zeros(1)] * 36)


@pytest.mark.parametrize(
    ("name", "make"),
    [("ops.rnn_step_gru", make_cell), ("ops.rnn_gru", make_sequence)],
)
def test_with_an_open_reset_gate_both_units_are_equal(
    name: str, make: Callable[..., Callable[[], torch.Tensor]]
) -> None:
    comparison = COMPARISONS[name]
    inputs = inputs_of(comparison, comparison.workload.sizes["small"])
    exact = resolve(comparison.workload.reference)(*(x.double() for x in inputs)).float()
    torch.testing.assert_close(make(*inputs)(), exact, rtol=0.0, atol=1e-6)


def test_tensors_are_found_in_any_pytree() -> None:
    found = flatten({"a": (torch.zeros(2), [torch.zeros(3, dtype=torch.float64)]), "b": 3})
    assert [t.dtype for t in found] == [torch.float32, torch.float64]
    with pytest.raises(ValueError, match="got int"):
        flatten(3)
