"""The operator: a convolutional network from a field to a field of the same shape.

Many operators of one architecture are computed at once, as one network with grouped convolutions:
their weights are tensors with a leading axis for the operators, and inputs of every call. So one
compilation serves all operators, and a dataset of thousands is not compiled thousands of times.

Source:
    The network of dgabriele/spinlock, ``docs/optimization/torch_compile_strategy.md``: with the
    defaults 2,405,699 weights.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import torch
from torch.nn.functional import conv2d, gelu, group_norm, pad

Parameters = dict[str, Any]
Norm = Literal["instance", "group", "none"]
Activation = Literal["gelu", "gelu-tanh"]
Boundary = Literal["zeros", "periodic"]

EPS: Final = 1e-5  # of both norms, as in torch.nn
CUBIC: Final = 0.044715  # of the GELU by tanh
# Blocks double the width until it is this many times that of the first.
WIDEST: Final = 4
AXES: Final = 5  # of a state: operators, realisations, channels, rows, columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """What an operator computes, apart from its weights.

    Attributes:
        n_channels: Channels of the field.
        width: Channels of the first convolution. Blocks double it, up to four times.
        depth: Residual blocks, each of two convolutions.
        norm: ``instance``: over each channel of a sample. ``group``: over groups of channels, which
            is another model, not a faster form of the first (``n_groups == width`` would be the
            same in the first block only). ``none``: no normalisation.
        n_groups: Groups of a layer with ``group``; must divide ``width``.
        activation: ``gelu`` with the error function, or ``gelu-tanh``, which differs by up to 5e-4.
        boundary: What convolutions see outside of the field.

    Raises:
        ValueError: If a value is not one of those named, or a number is too small.
    """

    n_channels: int = 3
    width: int = 64
    depth: int = 4
    norm: Norm = "instance"
    n_groups: int = 8
    activation: Activation = "gelu"
    boundary: Boundary = "zeros"

    def __post_init__(self) -> None:
        for name, least in (("n_channels", 1), ("width", 1), ("depth", 0), ("n_groups", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
        for name, kind in (("norm", Norm), ("activation", Activation), ("boundary", Boundary)):
            if getattr(self, name) not in get_args(kind):
                known = ", ".join(get_args(kind))
                raise ValueError(f"{name} must be one of {known}, got {getattr(self, name)!r}")
        if self.norm == "group" and self.width % self.n_groups:
            raise ValueError(
                f"n_groups must divide width, {self.width}, for the norm 'group', "
                f"got {self.n_groups}"
            )

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels after the first convolution and after each block."""
        return tuple(self.width * min(2**number, WIDEST) for number in (0, *range(self.depth)))

    @property
    def n_weights(self) -> int:
        """Number of weights of one operator."""
        return sum(math.prod(shape) for shape in _shapes(self).values())


@functools.cache
def _shapes(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight of one operator, by its name."""
    first, *later = architecture.widths
    shapes: dict[str, tuple[int, ...]] = {"stem": (first, architecture.n_channels, 3, 3)}
    before = first
    for number, after in enumerate(later):
        shapes[f"block{number}.first"] = (after, before, 3, 3)
        shapes[f"block{number}.second"] = (after, after, 3, 3)
        if after != before:
            shapes[f"block{number}.project"] = (after, before, 1, 1)
        before = after
    if architecture.norm != "none":
        for name in [name for name in shapes if not name.endswith(".project")]:
            shapes[f"{name}.gain"] = shapes[f"{name}.shift"] = shapes[name][:1]
    shapes["last"] = (architecture.n_channels, before, 1, 1)
    shapes["last.shift"] = (architecture.n_channels,)
    return shapes


def make_parameters(
    architecture: Architecture, generator: torch.Generator, *, n_operators: int = 1
) -> Parameters:
    """Draw random weights of operators.

    Args:
        architecture: The architecture of all of them.
        generator: Source of all random numbers; a CPU generator.
        n_operators: How many.

    Returns:
        Float64 tensors by name, each with a leading axis ``n_operators``. Convolutions are
        ``[n_operators, n_out, n_in, k, k]`` with variance ``1 / (n_in k k)``; gains are 1 and
        shifts 0, both with noise of 0.1.

    Raises:
        ValueError: If ``n_operators`` is less than 1.
    """
    if n_operators < 1:
        raise ValueError(f"n_operators must be at least 1, got {n_operators}")
    drawn = {}
    for name, shape in _shapes(architecture).items():
        values = torch.randn((n_operators, *shape), dtype=torch.float64, generator=generator)
        if len(shape) > 1:
            drawn[name] = values / math.sqrt(math.prod(shape[1:]))
        else:
            drawn[name] = 0.1 * values + (1.0 if name.endswith(".gain") else 0.0)
    return drawn


def check_parameters(architecture: Architecture, parameters: Parameters) -> int:
    """Return the number of operators whose weights these are.

    Raises:
        ValueError: If a weight is missing, unknown, or has another shape, dtype or device.
    """
    shapes = _shapes(architecture)
    if set(parameters) != set(shapes):
        missing = sorted(set(shapes) - set(parameters))
        unknown = sorted(set(parameters) - set(shapes))
        raise ValueError(
            f"parameters must be those of {architecture}: missing {missing}, unknown {unknown}"
        )
    like = parameters["stem"]
    n_operators = like.shape[0] if like.ndim else 0
    if n_operators < 1:
        raise ValueError(
            f"parameters['stem'] must have a leading axis for one or more operators, "
            f"got shape {list(like.shape)}"
        )
    for name, shape in shapes.items():
        given = parameters[name]
        if tuple(given.shape) != (n_operators, *shape):
            raise ValueError(
                f"parameters[{name!r}] must have shape {[n_operators, *shape]}, "
                f"got {list(given.shape)}"
            )
        if given.dtype != like.dtype or given.device != like.device:
            raise ValueError(
                f"parameters[{name!r}] must be {like.dtype} on {like.device} like the others, "
                f"got {given.dtype} on {given.device}"
            )
    return n_operators


def check_state(architecture: Architecture, state: torch.Tensor, n_operators: int) -> None:
    """Check the shape and the dtype of a state.

    Raises:
        ValueError: If one is wrong.
    """
    wanted = f"[{n_operators}, n_realisations, {architecture.n_channels}, height, width]"
    if (
        state.ndim != AXES
        or state.shape[0] != n_operators
        or state.shape[2] != architecture.n_channels
        or 0 in state.shape
    ):
        raise ValueError(
            f"the state must have shape {wanted}, none of it 0, got {list(state.shape)}"
        )
    if state.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"the state must be float32 or float64, got {state.dtype}: increments smaller than its "
            "spacing would be lost, and the trajectory stand still; choose a short precision for "
            "the operator instead (precision=)"
        )


def check_inputs(architecture: Architecture, parameters: Parameters, state: torch.Tensor) -> int:
    """Return the number of operators whose weights and states these are.

    Raises:
        ValueError: If a shape or a dtype is wrong, or dtype or device of both differ.
    """
    n_operators = check_parameters(architecture, parameters)
    check_state(architecture, state, n_operators)
    weights = parameters["stem"]
    if weights.dtype != state.dtype or weights.device != state.device:
        raise ValueError(
            f"parameters must be {state.dtype} on {state.device} like the state, "
            f"got {weights.dtype} on {weights.device}"
        )
    return n_operators


def apply_operator(
    architecture: Architecture, parameters: Parameters, state: torch.Tensor
) -> torch.Tensor:
    """Return what each operator makes of its states.

    Args:
        architecture: The architecture of the operators.
        parameters: Their weights, from ``make_parameters``, in the dtype of the state.
        state: Shape ``[n_operators, n_realisations, n_channels, height, width]``, float32 or
            float64.

    Returns:
        Shape and dtype of ``state``.

    Raises:
        ValueError: If a shape or a dtype is wrong.
    """
    n_operators = check_inputs(architecture, parameters, state)
    weights = join_operators(parameters)
    return split_operators(network(architecture, weights, joined(state), n_operators), n_operators)


def join_operators(parameters: Parameters) -> Parameters:
    """Return weights with the axis of the operators joined to that of the channels."""
    return {name: values.flatten(0, 1) for name, values in parameters.items()}


def joined(state: torch.Tensor) -> torch.Tensor:
    """Return ``[n_realisations, n_operators * n_channels, height, width]``, contiguous."""
    return state.transpose(0, 1).flatten(1, 2).contiguous()


def split_operators(x: torch.Tensor, n_operators: int) -> torch.Tensor:
    """Return ``[n_operators, n_realisations, n_channels, height, width]``: undo ``joined``."""
    return x.unflatten(1, (n_operators, -1)).transpose(0, 1)


def network(
    architecture: Architecture,
    weights: Parameters,
    x: torch.Tensor,
    n_operators: int,
) -> torch.Tensor:
    """Return the output of the network for joined operators; checks nothing.

    An instance norm is written as a group norm with a group for each channel: the same function,
    and eager PyTorch computes it faster on a CPU (docs/rollout.md).

    Args:
        architecture: The architecture of the operators.
        weights: From ``join_operators``.
        x: From ``joined``.
        n_operators: How many operators are joined.
    """
    activate = _gelu_tanh if architecture.activation == "gelu-tanh" else gelu
    channels_last = _keeps_channels_last(weights["stem"], n_operators)

    def convolve(name: str, h: torch.Tensor) -> torch.Tensor:
        weight = weights[name]
        reach = weight.shape[-1] // 2
        if reach and architecture.boundary == "periodic":
            h, reach = pad(h, (reach,) * 4, mode="circular"), 0
        if channels_last:
            h = h.contiguous(memory_format=torch.channels_last)
            weight = weight.contiguous(memory_format=torch.channels_last)
        return conv2d(h, weight, padding=reach, groups=n_operators)

    def layer(name: str, h: torch.Tensor) -> torch.Tensor:
        h = convolve(name, h)
        if architecture.norm == "none":
            return h
        by_channel = architecture.norm == "instance"
        n_groups = h.shape[1] if by_channel else n_operators * architecture.n_groups
        gain, shift = weights[f"{name}.gain"], weights[f"{name}.shift"]
        # Not in float64: PyTorch 2.6.0 compiles that form of 8 channels to wrong code beside others.
        is_fast = h.device.type == "cpu" and h.dtype != torch.float64
        if not by_channel and is_fast and torch.compiler.is_compiling():
            return norm_by_channel(h, n_groups, gain, shift)
        return group_norm(h, n_groups, gain, shift, eps=EPS)

    h = activate(layer("stem", x))
    for number in range(architecture.depth):
        block = f"block{number}"
        kept = convolve(f"{block}.project", h) if f"{block}.project" in weights else h
        h = activate(kept + layer(f"{block}.second", activate(layer(f"{block}.first", h))))
    return convolve("last", h) + weights["last.shift"][:, None, None]


def _keeps_channels_last(weight: torch.Tensor, n_operators: int) -> bool:
    """Return whether convolutions shall read and write channels last.

    Of grouped ones in float32 cuDNN copies what it reads and writes otherwise, up to four fifths of
    the time of a step (docs/gpu.md). Compiled, what is before a convolution writes that order;
    eagerly it would be one more copy.
    """
    return bool(
        n_operators > 1
        and weight.device.type == "cuda"
        and weight.dtype == torch.float32
        and torch.compiler.is_compiling()
    )


def norm_by_channel(
    h: torch.Tensor, n_groups: int, gain: torch.Tensor, shift: torch.Tensor
) -> torch.Tensor:
    """Return the group norm, from the mean and the variance of each channel.

    Inductor's code for a CPU is vectorised over the channels of a group, of which there may be two.
    Here it is over all of them: a group's variance is the mean of those of its channels plus the
    variance of their means. Sums over a group are products with a matrix, since Inductor makes
    a loop over single numbers of an index ``channel // size``.

    Args:
        h: Shape ``[n, n_channels, height, width]``; computed in float32 or longer.
        n_groups: How many groups of neighbouring channels.
        gain: Shape ``[n_channels]``.
        shift: Shape ``[n_channels]``.
    """
    x = h if h.dtype == torch.float64 else h.float()
    n_channels = x.shape[1]
    size = n_channels // n_groups
    group = torch.arange(n_channels, device=x.device) // size
    share = (group[:, None] == group).to(x.dtype) / size

    def over_group(values: torch.Tensor) -> torch.Tensor:
        return (values[:, :, None] * share).sum(1)

    variances, means = torch.var_mean(x, (2, 3), correction=0)
    mean = over_group(means)
    variance = over_group(variances + (means - mean).square())
    scale = torch.rsqrt(variance + EPS) * gain
    offset = shift - mean * scale
    return (x * scale[:, :, None, None] + offset[:, :, None, None]).to(h.dtype)


def _gelu_tanh(h: torch.Tensor) -> torch.Tensor:
    if h.device.type == "cpu" and torch.compiler.is_compiling():
        return logistic_gelu(h)
    return gelu(h, approximate="tanh")


def logistic_gelu(h: torch.Tensor) -> torch.Tensor:
    """Return the GELU by tanh: ``(1 + tanh u) / 2`` is the logistic function of ``2 u``.

    Inductor's code for a CPU takes less time than that with tanh (``studies.rollout.parts`` prints
    both): on PyTorch 2.15.0 27 µs in place of 69 for 32,768 numbers.
    """
    linear = 2.0 * math.sqrt(2.0 / math.pi)
    return h * torch.sigmoid(h * (linear + CUBIC * linear * h.square()))
