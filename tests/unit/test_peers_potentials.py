"""Comparing models with themselves detects wrong, stale or inexact ones; all models pass."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from ivhl.compile import CompileFallbackWarning
from ivhl.measure.timing import Schedule
from ivhl.workload import resolve
from studies.peers import potentials
from studies.peers.compare import PeerRow, compare
from studies.peers.potentials import (
    MOST_ERROR,
    N_GEOMETRIES,
    ByItself,
    MovingPotential,
    Potential,
    all_pairs,
    differentiated,
    gradient_error,
)
from studies.peers.report import print_table
from studies.peers.suite import MODELS, SUITES, Peer, PeerComparison

if TYPE_CHECKING:
    from collections.abc import Callable

SHORT = Schedule(block_s=1e-4, total_s=0.01, min_rounds=9, max_rounds=9)
(COMPARISON,) = MODELS
WORKLOAD = COMPARISON.workload
PEERS = {peer.name: peer for peer in (COMPARISON.ours, *COMPARISON.peers)}


def springs(positions: torch.Tensor) -> torch.Tensor:
    """Return an energy without symmetry: of springs between neighbours and to the origin."""
    between = (positions[1:] - positions[:-1]).square().sum()
    return between.square() + positions.square().sum() + positions.sum()


def make_springs(_: torch.Tensor, __: torch.dtype) -> Potential:
    return Potential(evaluate=differentiated(springs), n_weights=7)


def make_scaled(_: torch.Tensor, __: torch.dtype) -> Potential:
    """Return forces with a relative error of 2e-6 in both dtypes."""
    right = differentiated(springs)

    def evaluate(positions: torch.Tensor) -> tuple[Any, Any]:
        energy, forces = right(positions)
        return energy, (1.0 + 2.0 * potentials.MOST_GRADIENT_ERROR) * forces

    return Potential(evaluate=evaluate, n_weights=0)


def make_stale(_: torch.Tensor, dtype: torch.dtype) -> Potential:
    """Compute only in the first call, like ASE's cache in the founding benchmark."""
    right = differentiated(springs)
    kept: list[tuple[Any, Any]] = []

    def evaluate(positions: torch.Tensor) -> tuple[Any, Any]:
        if dtype == torch.float64 or not kept:
            kept[:] = [right(positions)]
        return kept[0]

    return Potential(evaluate=evaluate, n_weights=0)


def make_rough(_: torch.Tensor, dtype: torch.dtype) -> Potential:
    right = differentiated(springs)

    def evaluate(positions: torch.Tensor) -> tuple[Any, Any]:
        rounded = positions if dtype == torch.float64 else positions.bfloat16().float()
        return right(rounded)

    return Potential(evaluate=evaluate, n_weights=0)


def make_infinite(_: torch.Tensor, dtype: torch.dtype) -> Potential:
    right = differentiated(springs)

    def evaluate(positions: torch.Tensor) -> tuple[Any, Any]:
        energy, forces = right(positions)
        return energy, forces if dtype == torch.float64 else forces / 0.0

    return Potential(evaluate=evaluate, n_weights=0)


def make_constant(_: torch.Tensor, __: torch.dtype) -> Potential:
    return Potential(evaluate=differentiated(lambda x: 0.0 * x.sum()), n_weights=0)


def make_array(_: torch.Tensor, __: torch.dtype) -> Potential:
    """Return results as ASE does: a float, and an array or nested lists."""
    right = differentiated(springs)

    def evaluate(positions: torch.Tensor) -> tuple[Any, Any]:
        energy, forces = right(positions)
        return float(energy), forces.tolist()

    return Potential(evaluate=evaluate, n_weights=0)


def make_loud(numbers: torch.Tensor, dtype: torch.dtype) -> Potential:
    warnings.warn("this library is old", UserWarning, stacklevel=1)
    warnings.warn("ivhl: runs eagerly", CompileFallbackWarning, stacklevel=1)
    return make_springs(numbers, dtype)


def named(make: str, **about: Any) -> Peer:  # noqa: ANN401
    return Peer(name=make, make=f"{__name__}:make_{make}", **about)


def row_of(peer: Peer, size: str = "H2O") -> PeerRow:
    comparison = PeerComparison(
        workload=WORKLOAD, ours=named("springs"), peers=(peer,), judged="itself"
    )
    ours, row = compare(comparison, size, schedule=SHORT)
    assert (ours.status, ours.n_weights) == ("ok", 7)
    return row


@pytest.mark.parametrize("make", ["springs", "array"])
def test_a_model_that_agrees_with_itself_has_times_and_a_ratio(make: str) -> None:
    row = row_of(Peer(name="another", make=f"{__name__}:make_{make}"))
    assert (row.status, row.reason) == ("ok", "")
    assert row.error is not None
    assert 0.0 < row.error < 1e-6
    assert row.arm is not None
    assert row.speedup is not None


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        ("scaled", "forces are not minus the gradient of the energy: off by 2.0e-06 of the"),
        ("stale", "relative error against itself in float64: "),
        ("rough", "relative error against itself in float64: "),
        ("infinite", "relative error against itself in float64: inf"),
    ],
)
def test_a_model_that_disagrees_with_itself_is_wrong(make: str, reason: str) -> None:
    row = row_of(named(make))
    assert row.status == "wrong"
    assert row.reason.startswith(reason)
    assert (row.arm, row.speedup) == (None, None)


def test_only_warnings_of_a_fallback_are_shown(
    recwarn: pytest.WarningsRecorder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert row_of(named("loud")).status == "ok"
    shown = capsys.readouterr().err + "".join(str(w.message) for w in recwarn)
    assert "this library is old" not in shown
    assert "ivhl: runs eagerly" in shown


@pytest.mark.parametrize(
    ("peer", "reason"),
    [
        (named("constant"), "ValueError: energies must differ with the geometry, got [0.0, "),
        (Peer(name="missing", make="no_such_library:make"), "ModuleNotFoundError: "),
        (named("springs", arguments={"model": "x"}), "TypeError: make_springs() got an unexp"),
    ],
)
def test_a_model_that_does_not_run_is_unavailable(peer: Peer, reason: str) -> None:
    row = row_of(Peer(name="another", make=peer.make, arguments=peer.arguments))
    assert row.status == "unavailable"
    assert row.reason.startswith(reason)


def test_one_cached_result_is_detected() -> None:
    judge = ByItself(WORKLOAD, "H2O")
    peer = named("springs")
    call = judge.start(peer).call
    assert judge.judge(peer, call).passed
    assert isinstance(call, MovingPotential)
    right, calls = call._evaluate, 0

    def once_stale(positions: torch.Tensor) -> tuple[Any, Any]:
        nonlocal calls
        calls += 1
        return right(call._geometries[2] if calls == 7 else positions)

    call._evaluate = once_stale
    verdict = judge.judge(peer, call)
    assert not verdict.passed
    assert verdict.error is not None
    assert verdict.error > 10 * MOST_ERROR
    assert judge.judge(peer, call).passed


def test_every_call_evaluates_the_next_geometry_and_does_not_change_it() -> None:
    seen = []

    def evaluate(positions: torch.Tensor) -> tuple[Any, Any]:
        seen.append(positions)
        return positions.sum(), positions

    geometries = [torch.full((2, 3), float(n)) for n in range(3)]
    call = MovingPotential(evaluate, geometries)
    turns = []
    for _ in range(7):
        call()
        turns.append(call.turn)
    assert turns == [0, 1, 2, 0, 1, 2, 0]
    assert [float(x[0, 0]) for x in seen] == [0, 1, 2, 0, 1, 2, 0]


def test_central_differences_confirm_a_correct_gradient_to_1e_7() -> None:
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert gradient_error(differentiated(springs), x) < 1e-7


def test_all_pairs_are_both_orders_of_every_two_atoms() -> None:
    first, second = all_pairs(3)
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == [
        *((0, 1), (0, 2), (1, 0)),
        *((1, 2), (2, 0), (2, 1)),
    ]


# Warnings of other libraries when they are imported or scripted.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PEERS)
def test_each_model_of_the_suite_agrees_with_itself(name: str) -> None:
    """Runs the models of installed libraries; ``nox -s peers`` has all of them."""
    peer = PEERS[name]
    try:
        make: Callable[..., Potential] = resolve(peer.make)
    except ImportError as error:
        pytest.skip(f"{error.name} is only in the environment of the peers")
    if "ase" in peer.packages:
        pytest.importorskip("ase", reason="is in the environment of the peers")
        pytest.importorskip("vesin", reason="is in the environment of the peers")
    arguments = {name: value for name, value in peer.arguments.items() if name != "compiled"}
    judge = ByItself(WORKLOAD, "H2O")
    eager = Peer(name=name, make=peer.make, arguments=arguments)
    started = judge.start(eager)
    verdict = judge.judge(eager, started.call)
    assert verdict.passed, verdict.reason
    assert verdict.error is not None
    assert verdict.error < 1e-5
    assert started.n_weights is not None
    assert started.n_weights > 1e5
    numbers = torch.tensor([8, 1, 1])
    x = torch.tensor([[0.0, 0.0, 0.0], [0.8, 0.6, 0.1], [-0.7, 0.6, 0.0]])
    before = x.clone()
    evaluate = make(numbers, torch.float32, **arguments).evaluate
    first, again = evaluate(x), evaluate(x)
    assert torch.equal(x, before)
    assert not x.requires_grad
    torch.testing.assert_close(torch.as_tensor(first[1]), torch.as_tensor(again[1]))


def test_by_default_all_molecules_are_run() -> None:
    assert SUITES["mlff"].sizes == ("H2O", "CH4", "C6H6")
    assert set(SUITES["mlff"].sizes) == set(WORKLOAD.sizes)
    assert N_GEOMETRIES > 1


def test_the_table_has_the_number_of_weights(capsys: pytest.CaptureFixture[str]) -> None:
    row = row_of(Peer(name="another", make=f"{__name__}:make_springs"))
    print_table([row, replace(row, name="large", n_weights=589_185)])
    head, first, second = capsys.readouterr().out.splitlines()[1:4]
    place = head.index("weights")
    assert (first[place:].strip(), second[place:].strip()) == ("7", "589,185")
    print_table([replace(row, n_weights=None)])
    assert "weights" not in capsys.readouterr().out
