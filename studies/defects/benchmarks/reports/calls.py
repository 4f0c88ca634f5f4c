"""What public reports of the compiler do, each as a function; needs torch and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812  (its usual name)
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

Shapes = tuple[tuple[int, ...], ...]


def make_floats(shapes: Shapes, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return normal numbers of these shapes."""
    return tuple(torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes)


def make_rates(shapes: Shapes, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return numbers between 0 and 1 of these shapes."""
    return tuple(torch.rand(shape, dtype=torch.float64, generator=generator) for shape in shapes)


def make_bytes(shapes: Shapes, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return 8-bit integers of these shapes."""
    return tuple(
        torch.randint(-4, 4, shape, dtype=torch.int8, generator=generator) for shape in shapes
    )


def make_shifts(shapes: Shapes, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return integers, and by how many bits to shift them, 64 and more among them."""
    numbers = torch.randint(1, 1000, shapes[0], generator=generator)
    return numbers, torch.randint(60, 68, shapes[0], generator=generator)


def make_transposed(shapes: Shapes, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return images whose channels lie next to each other in memory, and none of whose axes do."""
    (numbers,) = make_floats(shapes, generator)
    return (numbers.permute(0, 4, 1, 3, 2),)


def make_nothing(shapes: Shapes, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return no inputs."""
    del shapes, generator
    return ()


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(left, right)
        return left * right + left + right

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        left, right = ctx.saved_tensors
        return gradient * (right + 1), gradient * (left + 1)


_SEEN: list[int] = []


class _AddsInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:  # noqa: ANN401
        del ctx
        sums = values * 2
        sums += 1
        _SEEN.append(1)
        return sums

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ANN401
        del ctx
        return gradient * 2


class Weighted(nn.Module):
    """A weight per column, of which a kind of function is taken."""

    def __init__(self, call: Callable[[Tensor, Tensor], Tensor], shape: tuple[int, ...]) -> None:
        """Draw the weights.

        Args:
            call: A function of this module that takes the weights and the input.
            shape: Shape of the weights.
        """
        super().__init__()
        self.call = call
        self.weight = nn.Parameter(torch.rand(shape) + 0.1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the function of the weighted input."""
        return self.call(self.weight, x)


class Counting(nn.Module):
    """Counts its calls in an attribute."""

    def __init__(self) -> None:
        """Start at zero."""
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        """Return what the layer returns, of a batch that grows with the count."""
        self.calls += 1
        return self.layer(x) * self.calls


class Noted(nn.Module):
    """Keeps what it has seen in a list of its class."""

    seen: list[Tensor] = []  # noqa: RUF012  (what the report is about)

    def __init__(self) -> None:
        """Make a layer."""
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Note the input, and return what the layer returns."""
        Noted.seen.append(x.detach())
        out: Tensor = self.layer(x)
        return out


def make_same_twice(shapes: Shapes) -> nn.Module:
    """Return a model that hands one tensor to a custom gradient twice."""
    return Weighted(same_twice, shapes[0])


def make_adds_in_place(shapes: Shapes) -> nn.Module:
    """Return a model whose custom gradient adds in place and notes it."""
    return Weighted(adds_in_place, shapes[0])


def make_greatest(shapes: Shapes) -> nn.Module:
    """Return a model that reduces to the greatest by index."""
    return Weighted(greatest, shapes[0])


def make_counting(shapes: Shapes) -> nn.Module:
    """Return a model that counts its calls."""
    del shapes
    return Counting()


def make_noted(shapes: Shapes) -> nn.Module:
    """Return a model that changes a list of its class."""
    del shapes
    return Noted()


def same_twice(weight: Tensor, x: Tensor) -> Tensor:
    """Report 183604."""
    product: Tensor = _Product.apply(weight, weight)
    return product * x


def adds_in_place(weight: Tensor, x: Tensor) -> Tensor:
    """Report 180642."""
    sums: Tensor = _AddsInPlace.apply(weight * x)
    return sums


def greatest(weight: Tensor, x: Tensor) -> Tensor:
    """Report 168358."""
    index = torch.zeros(len(x), dtype=torch.int64)
    lowest = torch.full((1,), float("-inf"), dtype=x.dtype)
    return lowest.index_reduce(0, index, weight * x, "amax", include_self=False)


def accumulated(x: Tensor) -> Tensor:
    """Report 136662."""

    def total(x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        y[:, 0] += x[:, 2].abs()
        y[:, 0] += x[:, 2].abs()
        return y.sum()

    gradient: Tensor = torch.func.grad(total)(x)
    return gradient


def multiplied(left: Tensor, right: Tensor) -> Tensor:
    """Report 191308."""
    return torch.matmul(left, right)


def overlapping(x: Tensor) -> Tensor:
    """Report 174371."""
    view = x.clone().as_strided((2, 2), (1, 1), 0)
    view.add_(1.0)
    return view


def shifted(numbers: Tensor, bits: Tensor) -> Tensor:
    """Report 143566."""
    return torch.bitwise_left_shift(numbers, bits)


def _step(x: Tensor, slope: Tensor, first: Tensor, second: Tensor, step: Tensor) -> None:
    step.add_(1)
    first.mul_(0.9).add_(slope, alpha=0.1)
    second.mul_(0.999).addcmul_(slope, slope, value=0.001)
    number = step.item()
    scale = second.sqrt() / (1 - 0.999**number) ** 0.5
    x.addcdiv_(first, scale.add_(1e-8), value=-0.001 / (1 - 0.9**number))


def stepped(x: Tensor, slope: Tensor) -> Tensor:
    """Report 185382."""
    x = x.clone()
    first, second = torch.zeros_like(x), torch.zeros_like(x)
    step = torch.tensor(0.0)
    for _ in range(10):
        _step(x, slope, first, second, step)
    return x


def condition(x: Tensor) -> Tensor:
    """Report 150114."""
    return torch.linalg.cond(torch.arctan(torch.ones_like(x)))


def signed(x: Tensor) -> Tensor:
    """Report 174172."""
    return torch.copysign(x, -0.0)


def merged(x: Tensor) -> Tensor:
    """Report 146538."""
    both = {"one": x.sin()} | {"two": x.cos()}
    return both["one"] + both["two"]


def filtered(x: Tensor, y: Tensor) -> Tensor:
    """Report 128944."""
    out = x
    for tensor in filter(lambda tensor: tensor.dim() == 1, [x, y]):
        out = out * tensor
    return out + 2000


class _Something:
    def __init__(self) -> None:
        self.__dict__["factor"] = 3.0


def set_in_dict(x: Tensor) -> Tensor:
    """Report 143756."""
    return x * _Something().factor  # type: ignore[attr-defined]


def logit_of_part(x: Tensor) -> Tensor:
    """Report 177839."""
    return torch.special.logit(x[:, :16], eps=0.51)


def eighth(x: Tensor) -> Tensor:
    """Report 178095."""
    return (x > 0).to(torch.float8_e4m3fn).to(torch.float32)


def seen_as_bytes(x: Tensor) -> tuple[Tensor, Tensor]:
    """Report 185515."""
    y = x.t().contiguous().view(torch.uint8)
    return y, torch.count_nonzero(y, dim=1)


def enlarged(x: Tensor) -> Tensor:
    """Report 183771."""
    return F.interpolate(x, size=(5, 6, 7), mode="nearest")


def rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    """Report 185337."""
    y = x.to(torch.float16).to(torch.float32)
    return y, y.sum(1)


def half_product(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Report 181568."""
    y = (x @ w).to(torch.bfloat16) + b
    return y, y.mean(-1)


def logarithm(x: Tensor) -> Tensor:
    """Report 110611."""
    return torch.log(x)


def mean(x: Tensor) -> Tensor:
    """Report 154703."""
    return x.mean()


def all_true(x: Tensor) -> Tensor:
    """Report 145220."""
    result = torch.empty((0,), dtype=torch.bool)
    torch.all(x.isfinite(), dim=1, out=result)
    return result


def mixed(x: Tensor, y: Tensor) -> Tensor:
    """Report 177630."""
    return torch.matmul(x.half(), y.float())


def counted(x: Tensor) -> Tensor:
    """Report 197896."""
    state = {"calls": 0}

    class Helper:
        def touch(self) -> None:
            state["calls"] += 1

    helper = Helper()
    helper.touch()
    helper.touch()
    return x * state["calls"]
