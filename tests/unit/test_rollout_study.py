"""The study of the rollout's phases: each arm computes what its name says; tables, lock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from ivhl.rollout import Architecture, apply_operator, make_parameters
from studies.rollout import arms as declared
from studies.rollout.__main__ import drift_of, joined, print_table
from studies.rollout.arms import FIRST, HAND, OURS, make_arms
from studies.rollout.written import WrittenOperator, WrittenStep, roll

if TYPE_CHECKING:
    from ivhl.rollout.operator import Norm

pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning")

SMALL = Architecture(width=8, depth=2)


@pytest.mark.parametrize("norm", ["instance", "group"])
def test_what_a_person_writes_is_the_operator_of_ivhl(norm: Norm) -> None:
    architecture = Architecture(width=8, depth=3, norm=norm, activation="gelu-tanh")
    parameters = make_parameters(architecture, torch.Generator().manual_seed(0))
    state = torch.randn(1, 2, 3, 8, 8, dtype=torch.float64)
    weights = {name: values[0] for name, values in parameters.items()}
    written = WrittenOperator(architecture, weights, noisy=False).double()
    # The modules hold float32, so the exact ones are rounded first.
    rounded = {name: values.float().double() for name, values in parameters.items()}
    with torch.no_grad():
        found = written(state[0])
    assert torch.allclose(found, apply_operator(architecture, rounded, state)[0], atol=1e-12)


def test_the_arms_are_those_of_the_strategy_and_those_without_a_compiler_are_near_float64() -> (
    None
):
    made = make_arms(SMALL, n_realisations=1, n_rows=8, precision=torch.bfloat16)
    names = {n for key, n in vars(declared).items() if key.isupper() and isinstance(n, str)}
    names.remove(declared.GRAPHS)  # on a GPU only
    peers = {declared.FOURIER, declared.FOURIER_COMPILED}  # installed in envs/rollout only
    assert set(made) in (names, names - peers)
    assert made[declared.OPERATORS].n_samples == made[declared.REALISATIONS].n_samples == 4
    with torch.no_grad():
        for name in (FIRST, declared.EAGER):
            drift = drift_of(made[name], 3, {})
            assert drift is not None
            assert 0.0 < drift < 1e-5
    assert all(made[arm.against].against is None for arm in made.values() if arm.against)


def test_a_drift_is_the_distance_to_float64() -> None:
    step = WrittenStep(torch.nn.Identity(), 0.5)
    start = torch.randn(1, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    exact = declared.PhaseArm(roll=lambda n: roll(step, start.double(), n), n_samples=1)
    off = declared.PhaseArm(roll=lambda n: exact.roll(n) + 0.25, n_samples=1, exact=exact.roll)
    end = exact.roll(2)
    scale = float((end - end.mean((-2, -1), keepdim=True)).square().mean().sqrt())
    assert drift_of(off, 2, {}) == pytest.approx(0.25 / scale, rel=1e-9)
    assert drift_of(exact, 2, {}) is None


def test_rows_are_joined_by_rounds_and_a_failure_in_one_process_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def row(samples: list[float], against: str | None = None) -> dict[str, Any]:
        return {
            "samples_s": samples, "against": against, "n_weights": 1, "drift": None,
            "convolutions": 0.5,
        }  # fmt: skip

    parts = [
        {"rows": {FIRST: row([4.0, 6.0]), HAND: row([2.0, 3.0]), OURS: row([1.0, 1.5], HAND),
                  "broken": {"reason": "no such"}}},
        {"rows": {FIRST: row([8.0]), HAND: row([4.0]), OURS: row([2.0], HAND),
                  "broken": row([1.0])}},
    ]  # fmt: skip
    found = {one["name"]: one for one in joined(parts)}
    assert found[OURS]["speedup"]["value"] == 4.0
    assert found[OURS]["by_hand"]["value"] == 2.0
    assert found[HAND]["by_hand"] is None
    assert found["broken"] == {"name": "broken", "reason": "no such"}
    about = {
        "torch": "2.15.0", "threads": 1, "n_weights": 1, "precision": "float32",
        "load_average": 0.0, "took_s": 1, "device": "cpu", "rows": list(found.values()),
    }  # fmt: skip
    print_table(about)
    assert "no such" in capsys.readouterr().out


def test_the_lock_is_hashed_and_has_the_torch_of_the_newest_cell() -> None:
    pytest.importorskip("uv", reason="locks are read where the project itself is installed")
    from ivhl.matrix.locks import lock_state, parse_lock  # noqa: PLC0415
    from ivhl.matrix.project import load  # noqa: PLC0415

    root, matrix = load(Path(__file__).parent)
    text = (root / "envs" / "rollout" / "rollout.txt").read_text(encoding="utf-8")
    pins = {pin.name: pin for pin in parse_lock(text)}
    assert all(pin.hashes for pin in pins.values())
    assert "://" not in text
    (cell,) = matrix.cells(pythons=matrix.pythons[:1], releases=matrix.releases("default")[-1:])
    newest = lock_state(root, cell)
    for name in newest.closure("torch"):
        assert pins[name].version == newest.packages[name]
    assert "neuraloperator" in pins
