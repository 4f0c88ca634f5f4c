"""Random numbers: equal ones in float64, and laws of those that cannot be made equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

torch = pytest.importorskip("torch", reason="randomness needs torch")

from ivhl.measure.randomness import CALLS, Drawing, DrawsIn, unlike  # noqa: E402  (torch first)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    Draw = Callable[[Tensor], Tensor]

X = torch.linspace(-2.0, 2.0, 64).reshape(4, 16)


DRAWS: dict[str, Draw] = {
    "randn_like": torch.randn_like,
    "rand": lambda x: torch.rand(x.shape, dtype=x.dtype),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.3),
    "channels": lambda x: torch.nn.functional.dropout1d(x[None], 0.5),
    "in place": lambda x: x.clone().exponential_(),
    "normal": lambda x: torch.normal(x, x.abs()),
    "rrelu": lambda x: torch.nn.functional.rrelu(x, training=True),
}


@pytest.mark.parametrize("name", DRAWS)
def test_code_in_float64_draws_the_numbers_of_float32(name: str) -> None:
    torch.manual_seed(3)
    eager = DRAWS[name](X)
    torch.manual_seed(3)
    with DrawsIn(torch.float32):
        exact = DRAWS[name](X.double())
    assert exact.dtype == torch.float64
    torch.testing.assert_close(exact, eager.double(), rtol=1e-6, atol=1e-6)


def test_what_is_not_random_stays_exact() -> None:
    x = X.double() / 3
    with DrawsIn(torch.float32):
        assert torch.equal(x.sin() @ x.T, x.sin() @ x.T)
        sum_ = (x.sin() + 1e-12).sum()
    assert sum_ == (x.sin() + 1e-12).sum()


def test_gradients_flow_through_a_draw_in_float64() -> None:
    def loss(x: Tensor) -> Tensor:
        torch.manual_seed(1)
        return torch.nn.functional.dropout(x * x, 0.5).sum()

    gradients = []
    for dtype in (torch.float32, torch.float64):
        x = X.detach().clone().to(dtype).requires_grad_()
        with DrawsIn(torch.float32):
            loss(x).backward()
        gradients.append(x.grad.double())
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-6)


def dropped(rate: float, factor: float, *, channels: bool = False) -> Draw:
    def call(x: Tensor) -> Tensor:
        shape = (len(x), 1) if channels else x.shape
        return x * (torch.rand(shape) >= rate) * factor

    return call


def calls_of(function: Draw, number: int, seed: int) -> list[list[Tensor]]:
    torch.manual_seed(seed)
    x = torch.sin(torch.arange(4096.0)).reshape(64, 64) + 2
    return [[function(x), torch.tensor(7)] for _ in range(number)]


HONEST: dict[str, Draw] = {
    "dropout": dropped(0.5, 2.0),
    "a low rate": dropped(0.01, 1 / 0.99),
    "channels": dropped(0.5, 2.0, channels=True),
    "noise": lambda x: x + torch.randn_like(x),
    "nothing random": lambda x: x,
    "infinities": lambda x: (x + torch.randn_like(x)).masked_fill(x > 2.5, -torch.inf),
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", HONEST)
def test_the_same_law_is_accepted(name: str, seed: int) -> None:
    eager = calls_of(HONEST[name], 2 * CALLS, seed)
    assert unlike(eager, calls_of(HONEST[name], CALLS, seed + 100), 1e-4) is None


@pytest.mark.parametrize(
    ("honest", "other", "says"),
    [
        ("dropout", dropped(0.4, 1 / 0.6), "share of zeros"),
        ("dropout", dropped(0.5, 1.9), "mean"),
        ("dropout", lambda x: dropped(0.5, 2.0)(x.flip(0)), "far from"),
        ("channels", lambda x: dropped(0.5, 2.0, channels=True)(x.T), "far from"),
        ("dropout", dropped(0.5, 2.01), "outside of"),
        ("noise", lambda x: x + 1.1 * torch.randn_like(x), "square"),
        ("noise", lambda x: x + 0.1 + torch.randn_like(x), "mean"),
        ("nothing random", lambda x: x * 1.01, "far from"),
        ("nothing random", lambda x: x * torch.nan, "zeros"),
        ("infinities", lambda x: HONEST["infinities"](x).nan_to_num(neginf=-9.0), "zeros"),
    ],
)
def test_another_law_is_refused_by_what_differs(honest: str, other: Draw, says: str) -> None:
    eager = calls_of(HONEST[honest], 2 * CALLS, 1)
    found = unlike(eager, calls_of(other, CALLS, 2), 1e-4)
    assert found is not None
    number, text = found
    assert number == 0
    assert says in text


def test_draws_from_a_generator_of_the_codes_own_are_noticed() -> None:
    with Drawing() as drawing:
        torch.ones(3).sum()
    assert not drawing.drew
    before = torch.get_rng_state()
    with Drawing() as drawing:
        torch.multinomial(torch.ones(9), 3, generator=torch.Generator().manual_seed(1))
    assert drawing.drew
    assert torch.equal(before, torch.get_rng_state())
