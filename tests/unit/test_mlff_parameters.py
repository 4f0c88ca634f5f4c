"""Weights of another model are refused by field; reference energies keep their digits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from ivhl.mlff.painn import make_parameters
from ivhl.mlff.parameters import (
    add_reference_energies,
    cast_parameters,
    check_parameters,
    join_parameters,
    list_known_elements,
    separate_parameters,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning")


def make_weights() -> dict[str, Any]:
    """Return random weights that know hydrogen and carbon."""
    weights = make_parameters(torch.Generator().manual_seed(0))
    references = torch.full((101,), torch.nan, dtype=torch.float64)
    references[[0, 1, 6]] = torch.tensor([0.0, -10.7, -48.8], dtype=torch.float64)
    return {**weights, "reference_energies": references}


def test_right_weights_pass() -> None:
    check_parameters(make_weights())
    check_parameters(make_parameters(torch.Generator().manual_seed(0)))
    check_parameters(cast_parameters(make_weights(), dtype=torch.float32, device="cpu"))


def put(weights: dict[str, Any], name: str, value: object) -> None:
    weights[name] = value


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda w: w.pop("embedding"), "missing embedding: are these the weights of another"),
        (lambda w: put(w, "head", 1), "unknown head: are these"),
        (lambda w: w["layers"][1].pop("mix_u"), r"layers\[1\] must have .*; missing mix_u"),
        (lambda w: w["layers"].pop(), "layers must be a list of 3 dicts, got 2"),
        (lambda w: put(w, "layers", 3), "layers must be a list of 3 dicts, got int"),
        (lambda w: w["layers"].__setitem__(0, 3), r"layers\[0\] must be a dict, got int"),
        (
            lambda w: put(w["layers"][2], "mix_u", torch.zeros(3, 3)),
            r"layers\[2\].mix_u must have shape \[128, 128\], got \[3, 3\]: are these",
        ),
        (lambda w: put(w, "readout_b2", [1.0]), "readout_b2 must be a tensor, got list"),
        (
            lambda w: put(w, "readout_b2", torch.tensor([1])),
            "readout_b2 must be real floating point, got torch.int64",
        ),
        (
            lambda w: put(w, "readout_b2", torch.tensor([torch.nan])),
            "readout_b2 must be finite, got NaN",
        ),
        (
            lambda w: put(w, "readout_b2", torch.zeros(1)),
            "one dtype, got torch.float32 and torch.float64",
        ),
        (
            lambda w: put(w, "reference_energies", torch.zeros(101)),
            "reference_energies must be a float64 tensor, got torch.float32",
        ),
        (
            lambda w: put(w, "reference_energies", torch.zeros(5, dtype=torch.float64)),
            r"reference_energies must have shape \[101\], one per element, got \[5\]",
        ),
        (
            lambda w: put(w, "reference_energies", torch.ones(101, dtype=torch.float64)),
            r"reference_energies\[0\] must be 0, as it is no atom, got 1.0",
        ),
        (
            lambda w: w["reference_energies"].__setitem__(7, torch.inf),
            "reference_energies must be finite, or NaN .* got infinity",
        ),
    ],
)
def test_wrong_weights_are_named(spoil: Callable[[Any], object], message: str) -> None:
    weights = make_weights()
    spoil(weights)
    with pytest.raises(ValueError, match=message):
        check_parameters(weights)


def test_what_is_no_dict_is_refused() -> None:
    with pytest.raises(ValueError, match="weights must be a dict of tensors, got Linear"):
        check_parameters(torch.nn.Linear(1, 1))


def test_casting_leaves_reference_energies_in_float64() -> None:
    weights = make_weights()
    weights["embedding"].requires_grad_()
    cast = cast_parameters(weights, dtype=torch.float32, device="cpu")
    assert cast["layers"][0]["mix_u"].dtype == torch.float32
    assert cast["reference_energies"].dtype == torch.float64
    assert not cast["embedding"].requires_grad
    assert weights["embedding"].requires_grad


def test_reference_energies_are_added_in_float64() -> None:
    weights = make_weights()
    numbers = torch.tensor([[6, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    energies = torch.tensor([0.1, 0.2, 0.0])
    whole = add_reference_energies(weights, numbers, energies)
    expected = energies.double() + torch.tensor(
        [-48.8 - 10.7 - 10.7, -10.7, 0.0], dtype=torch.float64
    )
    assert whole.dtype == torch.float64
    assert float((whole - expected).abs().max()) < 1e-13
    assert bool(add_reference_energies(weights, torch.tensor([7]), energies[0]).isnan())


def test_without_reference_energies_nothing_is_added() -> None:
    weights = make_weights()
    del weights["reference_energies"]
    whole = add_reference_energies(weights, torch.tensor([[6, 1]]), torch.tensor([0.5]))
    assert whole.tolist() == [0.5]
    assert whole.dtype == torch.float64


def test_known_elements_are_those_with_a_reference_energy() -> None:
    weights = make_weights()
    assert list_known_elements(weights) == [1, 6]
    del weights["reference_energies"]
    assert list_known_elements(weights) == list(range(1, 101))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_joined_weights_are_the_same_weights(dtype: torch.dtype) -> None:
    weights = cast_parameters(make_weights(), dtype=dtype, device="cpu")
    joined = join_parameters(weights)
    assert joined.ndim == 1
    assert joined.dtype == dtype
    separate = separate_parameters(joined)
    del weights["reference_energies"]
    check_parameters(separate)  # every field is there, in its shape
    for name, tensor in weights.items():
        if name != "layers":
            assert torch.equal(separate[name], tensor)
    for layer, one in zip(weights["layers"], separate["layers"], strict=True):
        assert layer.keys() == one.keys()
        assert all(torch.equal(one[name], layer[name]) for name in layer)
        assert all(one[name].storage_offset() % 16 == 0 for name in layer)
