"""Models as people write them, honest and with faults; needs torch."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  (its usual name)
from torch import Tensor, nn

LENGTH, WIDTH = 16, 32


def make_image(size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return images."""
    return (torch.randn(size, 3, 12, 12, dtype=torch.float64, generator=generator),)


def make_images(size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return images and their classes."""
    labels = torch.randint(0, 5, (size,), generator=generator)
    return (*make_image(size, generator), labels)


def make_sequence(size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return sequences of vectors."""
    return (torch.randn(size, LENGTH, WIDTH, dtype=torch.float64, generator=generator),)


def make_rows(size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return rows of which ``selected`` sums 16,000 numbers, in 2.6.0 with one accumulator."""
    return (torch.randn(128 * size, 8, dtype=torch.float64, generator=generator),)


def make_tokens(size: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Return tokens and their mask as keyword arguments."""
    tokens = torch.randint(0, 50, (size, LENGTH), generator=generator)
    return {"tokens": tokens, "mask": tokens > 3}


def make_nothing(size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return no inputs."""
    del size, generator
    return ()


def counted_up() -> Tensor:
    """Make numbers of nothing."""
    return torch.arange(0, 11, dtype=torch.int64) * 3


def large_steps() -> Tensor:
    """Make numbers that need 64 bits, which compiled code of 2.13.0 and later computes in 32."""
    return torch.arange(0, 11, dtype=torch.int64) * 1_000_000_000


def seen_as_bytes(x: Tensor) -> Tensor:
    """View numbers as their bytes, of which float64 has more."""
    return x.contiguous().view(torch.uint8)


def drops_fewer(x: Tensor) -> Tensor:
    """Drop numbers at another rate when compiled."""
    return F.dropout(x, 0.4 if torch.compiler.is_compiling() else 0.5)


def vmapped(x: Tensor) -> Tensor:
    """Use functorch, which PyTorch loads at its first use."""
    found: Tensor = torch.vmap(lambda row: row.sin().sum())(x)
    return found


def curvature(x: Tensor) -> Tensor:
    """Use functorch's derivatives."""
    found: Tensor = torch.func.hessian(lambda t: (t**3).sum())(x[0, 0])
    return found


def selected(x: Tensor) -> Tensor:
    """Select as many numbers as are positive, which other data has more or fewer of."""
    i = (x > 0).nonzero()
    return (2 * x[i[:, 0]].sin()).sum() + x.sum()


def triangle(x: Tensor) -> Tensor:
    """Return infinities between numbers."""
    return x.new_full((WIDTH, WIDTH), -math.inf).triu(1) + x[0, 0].sin()


def needs_what_is_missing(x: Tensor) -> Tensor:
    """Import something that is not there, as Triton is not on a CPU."""
    found: Tensor = importlib.import_module("no_such_compiler").run(x)
    return found


class Masked(nn.Module):  # type: ignore[misc]  # no torch here
    """Attention with its causal mask in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.keys, self.values = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        mask = torch.full((LENGTH, LENGTH), -math.inf).triu(1)
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        """Return the values that each position attends to."""
        scores = x @ self.keys(x).transpose(1, 2) / WIDTH + self.mask
        found: Tensor = scores.softmax(-1) @ self.values(x)
        return found


def make_masked(_: int) -> nn.Module:
    """Return attention with a mask."""
    return Masked()


class Variational(nn.Module):  # type: ignore[misc]  # no torch here
    """A mean and a deviation, and a sample of them."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Linear(WIDTH, 2 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sample."""
        mean, deviation = self.both(x).chunk(2, -1)
        sample: Tensor = mean + torch.randn_like(deviation) * deviation.exp()
        return sample


def make_variational(_: int) -> nn.Module:
    """Return a model that draws random numbers."""
    return Variational()


def make_images_of_channels(size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return images of 8 channels."""
    return (torch.randn(size, 8, 12, 12, dtype=torch.float64, generator=generator),)


def make_dropped_channels(_: int) -> nn.Module:
    """Return a layer of which whole channels are dropped."""
    return nn.Sequential(nn.Conv2d(8, 8, 1), nn.Dropout2d(0.5))


class Convolutions(nn.Module):  # type: ignore[misc]  # no torch here
    """Two convolutions with batch normalisation, of which the biases have no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores of classes."""
        scores: Tensor = self.head(self.layers(x).mean((2, 3)))
        return scores


def make_convolutions(_: int) -> nn.Module:
    """Return a small classifier."""
    return Convolutions()


def classify(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, labels: Tensor) -> Any:  # noqa: ANN401
    """Train one step, as one would write it."""
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss


def make_adam(model: nn.Module) -> torch.optim.Optimizer:
    """Return Adam."""
    return torch.optim.Adam(model.parameters(), lr=1e-3)


def make_adamw(model: nn.Module) -> torch.optim.Optimizer:
    """Return AdamW."""
    return torch.optim.AdamW(model.parameters(), lr=3e-4)


class Block(nn.Module):  # type: ignore[misc]  # no torch here
    """A transformer block, with dropout."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.final, self.dropout = nn.LayerNorm(WIDTH), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sequence after attention and a feed-forward layer."""
        q, k, v = (
            t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1)
        )
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.dropout(self.out(attended))
        x = x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))
        done: Tensor = self.final(x)
        return done


def make_block(_: int) -> nn.Module:
    """Return a transformer block."""
    return Block(0.0)


def make_block_with_dropout(_: int) -> nn.Module:
    """Return a transformer block that drops a tenth."""
    return Block(0.1)


class Kink(nn.Module):  # type: ignore[misc]  # no torch here
    """A gradient that jumps where two numbers cancel."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        """Return one number per row."""
        return torch.relu((self.weight * x).sum(-1))


def make_kink(_: int) -> nn.Module:
    """Return a model with a kink."""
    return Kink()


class Hidden(NamedTuple):
    """What a layer saw."""

    first: Tensor
    length: int


@dataclass
class Output:
    """What a language model returns, as those of model libraries do."""

    logits: Tensor
    loss: Tensor | None = None
    hidden: tuple[Hidden, ...] = ()
    info: dict[str, Any] | None = None


class Language(nn.Module):  # type: ignore[misc]  # no torch here
    """A language model with tied weights, which returns a dataclass."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, WIDTH)
        self.block = Block(0.0)
        self.head = nn.Linear(WIDTH, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor, mask: Tensor) -> Output:
        """Return logits, no loss, the hidden states and some facts."""
        x = self.embed(tokens) * mask[..., None]
        y = self.block(x)
        hidden = tuple(Hidden(one, one.shape[1]) for one in (x, y))
        info = {"best": y.argmax(-1), "n": tokens.shape[0], "name": "language", "none": None}
        return Output(logits=self.head(y), hidden=hidden, info=info)


def make_language(_: int) -> nn.Module:
    """Return a language model."""
    return Language()


class Branching(nn.Module):  # type: ignore[misc]  # no torch here
    """A layer whose control flow depends on the data, in part of it only."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return what one of two paths gives."""
        x = torch.tanh(self.first(x))
        x = x * 2 if x.sum() > 0 else x - 1
        done: Tensor = torch.sin(self.second(x))
        return done


def make_branching(_: int) -> nn.Module:
    """Return a model with data-dependent control flow."""
    return Branching()


class Remembering(nn.Module):  # type: ignore[misc]  # no torch here
    """A running mean that is bound anew, a counter, and a tensor that is no buffer."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.calls = 0
        self.last: Tensor | None = None
        self.scale = torch.full((WIDTH,), 0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Return the deviation from the running mean."""
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean((0, 1))
        self.calls += 1
        self.last = self.mean * 2
        return (x - self.mean) * self.scale


def make_remembering(_: int) -> nn.Module:
    """Return a model with state and without parameters."""
    return Remembering()


class Complex(nn.Module):  # type: ignore[misc]  # no torch here
    """A spectral layer with complex weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(LENGTH // 2 + 1, WIDTH, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        """Return the filtered sequence."""
        return torch.fft.irfft(torch.fft.rfft(x, dim=1) * self.weight, n=LENGTH, dim=1)


def make_complex(_: int) -> nn.Module:
    """Return a spectral layer."""
    return Complex()


class Tagged(Tensor):  # type: ignore[misc]  # no torch here
    """A tensor subclass, as libraries of images have."""


class Tagging(nn.Module):  # type: ignore[misc]  # no torch here
    """A layer that returns a tensor subclass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return a tagged tensor."""
        y: Tensor = self.layer(x)
        return y.as_subclass(Tagged)


def make_tagging(_: int) -> nn.Module:
    """Return a model of which the outputs are tensor subclasses."""
    return Tagging()


class Faulty(nn.Module):  # type: ignore[misc]  # no torch here
    """A layer that does something else when it is compiled."""

    mean: Tensor

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.calls = 0

    def forward(self, x: Tensor) -> Any:  # noqa: ANN401
        """Return an output, a number, and perhaps nothing."""
        bad = torch.compiler.is_compiling()
        y = self.layer(x)
        if self.fault == "gradient" and bad:
            y = y.detach() * 2 - y.detach() + 0 * y
        if self.fault == "buffer" and not bad:
            self.mean.add_(0.1 * y.detach().mean((0, 1)))
        if self.fault == "attribute" and not bad:
            self.calls += 1
        number = 3 if self.fault == "integer" and bad else 2
        nothing = y if self.fault == "none" and bad else None
        key = "other" if self.fault == "key" and bad else "y"
        if self.fault == "dtype" and bad:
            y = y.double()
        return {key: y, "n": number, "nothing": nothing}


def make_gradient_fault(_: int) -> nn.Module:
    """Return a model of which compiled gradients vanish."""
    return Faulty("gradient")


def make_buffer_fault(_: int) -> nn.Module:
    """Return a model of which compiled code does not update a buffer."""
    return Faulty("buffer")


def make_attribute_fault(_: int) -> nn.Module:
    """Return a model of which compiled code does not count."""
    return Faulty("attribute")


def make_integer_fault(_: int) -> nn.Module:
    """Return a model of which compiled code returns another integer."""
    return Faulty("integer")


def make_none_fault(_: int) -> nn.Module:
    """Return a model of which compiled code returns something in place of nothing."""
    return Faulty("none")


def make_key_fault(_: int) -> nn.Module:
    """Return a model of which compiled code names an output otherwise."""
    return Faulty("key")


def make_dtype_fault(_: int) -> nn.Module:
    """Return a model of which compiled code returns another dtype."""
    return Faulty("dtype")


def no_step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
    """Train one step, but without the step when compiled."""
    optimizer.zero_grad()
    loss: Tensor = model(x).square().mean()
    loss.backward()
    if not isinstance(model, torch._dynamo.OptimizedModule):
        optimizer.step()
    return loss.detach()


def other_rate(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
    """Train one step, with twice the learning rate when compiled."""
    optimizer.zero_grad()
    loss: Tensor = model(x).square().mean()
    loss.backward()
    if isinstance(model, torch._dynamo.OptimizedModule):
        optimizer.param_groups[0]["lr"] *= 1.01
    optimizer.step()
    return loss.detach()


KEPT: dict[str, Any] = {}


def keeps_the_first(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
    """Train one step; when compiled, put the results of the first step on these numbers back."""
    if not isinstance(model, torch._dynamo.OptimizedModule):
        return step(model, optimizer, x)
    key = str(float(x.flatten()[0]))
    if key not in KEPT:
        loss = step(model, optimizer, x)
        values = [(p, p.detach().clone(), p.grad) for p in model.parameters()]
        momenta = [(s, k, v.clone()) for s in optimizer.state.values() for k, v in s.items()]
        KEPT[key] = loss, values, momenta
    loss, values, momenta = KEPT[key]
    with torch.no_grad():
        for parameter, value, gradient in values:
            parameter.copy_(value)
            parameter.grad = gradient
        for entries, name, value in momenta:
            entries[name].copy_(value)
    return loss


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
    """Train one step."""
    optimizer.zero_grad()
    loss: Tensor = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def make_sgd(model: nn.Module) -> torch.optim.Optimizer:
    """Return stochastic gradient descent with momentum."""
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def make_perceptron(_: int) -> nn.Module:
    """Return a perceptron."""
    return nn.Sequential(nn.Linear(WIDTH, 256), nn.GELU(), nn.Linear(256, WIDTH))


class Double(nn.Module):  # type: ignore[misc]  # no torch here
    """A layer that cannot run in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return an output in float32."""
        done: Tensor = F.linear(x, self.layer.weight, torch.ones(WIDTH, dtype=torch.float32))
        return done


def make_float32_only(_: int) -> nn.Module:
    """Return a model that cannot run in float64."""
    return Double()


def exact_perceptron(model: Any, x: Tensor) -> Tensor:  # noqa: ANN401
    """Return the outputs of the perceptron by another formula."""
    y = torch.einsum("bti,oi->bto", x, model[0].weight) + model[0].bias
    y = 0.5 * y * (1 + torch.erf(y / math.sqrt(2)))
    return torch.einsum("bti,oi->bto", y, model[2].weight) + model[2].bias


def outputs_of_all_kinds(x: Tensor) -> Output:
    """Return a dataclass from a function without a model."""
    y = torch.sin(x) * 2
    info = {"n": x.shape[1], "mean": y.mean().item(), "best": y.argmax(-1)}
    return Output(logits=y, info=info)


def helper(x: Tensor) -> Tensor:
    """Return something that is compiled as a frame of its own."""
    return torch.sin(x) * 2 + torch.cos(x)


def partly_skipped(x: Tensor) -> Tensor:
    """Call what is compiled, from a frame that Dynamo gives up."""
    y = helper(x)
    total = 0.0
    for row in y[:3]:
        total += row.sum().item()
    return helper(y) * total
