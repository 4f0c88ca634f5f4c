"""Linear layers in FP8: e4m3, one scale for each tensor, from the amax of steps before.

Where the device multiplies FP8 (NVIDIA, from compute capability 8.9), the layer calls
``transformer_engine`` if it is installed, else ``torch._scaled_mm``. Elsewhere the same rounded
numbers are multiplied in float32: results agree up to rounding, and times say nothing of FP8. The
``kernel`` of a layer says which one it is.
"""

from __future__ import annotations

import functools
import importlib
import math
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import torch
from torch import nn

from ivhl.device import compute_capability

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ivhl.surgical.plan import Compiler

Fp8Kernel = Literal["transformer_engine", "scaled_mm", "emulated"]
AmaxChoice = Literal["max", "most-recent"]

E4M3: Final = torch.float8_e4m3fn
E4M3_MAX: Final = 448.0
MOST_MARGIN: Final = 17  # 448 / 2 ** 18 is less than 2 ** -9, the smallest e4m3 number
FP8_CAPABILITY: Final = (8, 9)  # first with FP8 tensor cores: Ada, Hopper
MULTIPLE: Final = 16  # of both sizes of a weight, and of the tokens, for torch._scaled_mm


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRecipe:
    """The rule for the scale of a tensor.

    Attributes:
        history: Steps whose largest absolute value (amax) is remembered; 0: the scale of each call
            comes from the tensor itself (current scaling).
        amax: ``max`` of the history, or the ``most-recent``.
        margin: The scale is divided by ``2 ** margin``, which leaves room for larger numbers; at
            most 17.

    Raises:
        ValueError: If a value is not one of those named, or a number is negative or too large.
    """

    history: int = 16
    amax: AmaxChoice = "max"
    margin: int = 0

    def __post_init__(self) -> None:
        for name in ("history", "margin"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"{name} must be an integer of at least 0, got {value!r}")
        if self.margin > MOST_MARGIN:
            raise ValueError(
                f"margin must be at most {MOST_MARGIN}, or the amax itself is less than the "
                f"smallest number of e4m3, got {self.margin}"
            )
        if self.amax not in get_args(AmaxChoice):
            known = ", ".join(get_args(AmaxChoice))
            raise ValueError(f"amax must be one of {known}, got {self.amax!r}")


def fp8_kernel(device: torch.device | str) -> Fp8Kernel:
    """Return the name of the kernel for FP8 multiplications on a device."""
    capability = _capability(torch.device(device))
    if capability is None or capability < FP8_CAPABILITY:
        return "emulated"
    return "transformer_engine" if _has_transformer_engine() else "scaled_mm"


# Layers ask at each call.
@functools.cache
def _has_transformer_engine() -> bool:
    return find_spec("transformer_engine") is not None


def _capability(device: torch.device) -> tuple[int, int] | None:
    """Return ``compute_capability``, asked once for each device."""
    if device.type == "cuda" and device.index is None:  # the current one, which can change
        device = torch.device("cuda", torch.cuda.current_device())
    return _capability_at(device)


_capability_at = functools.cache(compute_capability)


def quantise(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return ``x * scale`` rounded to e4m3; what is larger than 448 becomes 448."""
    return (x.float() * scale).clamp(-E4M3_MAX, E4M3_MAX).to(E4M3)


def scale_of(amax: torch.Tensor, margin: int) -> torch.Tensor:
    """Return the scale for a largest absolute value; 1 if that is 0, an infinity or NaN."""
    usable = torch.isfinite(amax) & (amax > 0.0)
    # Of the smallest numbers, 448 / amax is an infinity.
    scale = (E4M3_MAX / amax / 2.0**margin).clamp(max=torch.finfo(torch.float32).max)
    return torch.where(usable, scale, torch.ones_like(amax))


def round_at(x: torch.Tensor, scale: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Return a tensor in e4m3, and take its amax into ``seen``.

    Compiled, it reads the tensor once: the scale does not depend on it.

    Args:
        x: ``[n]``.
        scale: What it is multiplied by.
        seen: Largest absolute value of the step so far, float32; raised to that of ``x``.
    """
    seen.copy_(torch.maximum(seen, x.abs().amax().float()))
    return quantise(x, scale)


def round_first(
    x: torch.Tensor,
    held: tuple[torch.Tensor, torch.Tensor] | None,
    seen: torch.Tensor,
    margin: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a tensor in e4m3 and its scale, chosen here, and take its amax into ``seen``.

    Args:
        x: ``[n]``.
        held: The scale of the steps before, and the amax of the last one, which is 0 if there was
            none: the scale is then that of ``x``, as it is without ``held``.
        seen: Largest absolute value of the step so far, float32; raised to that of ``x``.
        margin: Of the recipe.
    """
    amax = x.abs().amax().float()
    seen.copy_(torch.maximum(seen, amax))
    scale = scale_of(amax, margin)
    if held is not None:
        scale = torch.where(held[1] == 0.0, scale, held[0])
    return quantise(x, scale), scale


# Functions of their own: a compiler has a limit of shapes for each, and those of weights are few.
def round_weight_at(x: torch.Tensor, scale: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Return what ``round_at`` does."""
    return round_at(x, scale, seen)


def round_weight_first(
    x: torch.Tensor,
    held: tuple[torch.Tensor, torch.Tensor] | None,
    seen: torch.Tensor,
    margin: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what ``round_first`` does."""
    return round_first(x, held, seen, margin)


def multiply_emulated(
    x: torch.Tensor, weight: torch.Tensor, inverse: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """Return ``x @ weight.T * inverse`` of e4m3 tensors, multiplied in float32.

    Products of two e4m3 numbers are exact in float32; only the order of the sums differs.

    Args:
        x: ``[n_tokens, n_in]``, e4m3.
        weight: ``[n_out, n_in]``, e4m3.
        inverse: One over the product of both scales.
        dtype: Dtype of the result.
    """
    return (x.float() @ weight.float().t() * inverse).to(dtype)


def multiply_scaled(
    x: torch.Tensor,
    weight: torch.Tensor,
    scales: tuple[torch.Tensor, torch.Tensor],
    dtype: torch.dtype,
) -> torch.Tensor:
    """Return the same by ``torch._scaled_mm``: the left operand by rows, the right one by columns.

    Args:
        x: ``[n_tokens, n_in]``, e4m3, contiguous.
        weight: ``[n_out, n_in]``, e4m3, contiguous: its transpose lies by columns.
        scales: Of ``x`` and of ``weight``, by which they were multiplied.
        dtype: Dtype of the result.
    """
    inverse_x, inverse_weight = (scale.reciprocal() for scale in scales)
    product: torch.Tensor = torch._scaled_mm(  # noqa: SLF001  (no public name before 2.10)
        x, weight.t(), scale_a=inverse_x, scale_b=inverse_weight, out_dtype=dtype
    )
    return product


def _before_any_step(recipe: ScalingRecipe) -> dict[str, torch.Tensor]:
    """Return the buffers of a ``TensorScale``, float32 whatever the default dtype is."""
    return {
        "scale": torch.ones((), dtype=torch.float32),
        "history": torch.zeros(max(recipe.history, 1), dtype=torch.float32),
        "seen": torch.zeros((), dtype=torch.float32),
    }


class TensorScale(nn.Module):
    """The scale of one tensor, and the history that it comes from.

    Args:
        recipe: How the scale is chosen.
        at: ``round_at``, compiled; without it nothing is.
        first: ``round_first``, compiled as well then.

    Attributes:
        scale: What the tensor is multiplied by, float32; 1 before any step.
        history: Amax of past steps, the latest first; 0 where there was none.
        seen: Largest absolute value of the step that is under way.
    """

    scale: torch.Tensor
    history: torch.Tensor
    seen: torch.Tensor

    def __init__(
        self,
        recipe: ScalingRecipe,
        at: Callable[..., torch.Tensor] | None = None,
        first: Callable[..., tuple[torch.Tensor, torch.Tensor]] = round_first,
    ) -> None:
        super().__init__()
        self.recipe = recipe
        self._round_at = at
        self._round_first = first
        # Whether there was a step; None: ask the history, which waits for the device.
        self._has_step: bool | None = False
        for name, buffer in _before_any_step(recipe).items():
            self.register_buffer(name, buffer)

    def _apply(self, function: Any, recurse: bool = True) -> Any:  # noqa: ANN401, FBT001, FBT002
        """Move to a device, and keep float32 when the model is cast: see ``torch.nn.Module``."""
        before = {name: buffer.clone() for name, buffer in self.named_buffers()}
        super()._apply(function, recurse)
        if any(buffer.is_meta for buffer in before.values()):  # which holds no numbers to keep
            before, self._has_step = _before_any_step(self.recipe), False
        for name, buffer in before.items():
            setattr(self, name, buffer.to(getattr(self, name).device))
        return self

    def _load_from_state_dict(self, *args: Any) -> None:  # noqa: ANN401
        """Load buffers: see ``torch.nn.Module``."""
        super()._load_from_state_dict(*args)
        self._has_step = None

    @torch.no_grad()
    def round(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a tensor in e4m3, contiguous, and its scale, and remember its amax.

        The first step has no history: it takes the scale of the tensor itself. A tensor without
        numbers leaves all as it is.
        """
        if not x.numel():
            return x.to(E4M3), self.scale
        flat = x.detach().flatten()  # fewer shapes to compile
        delayed = self.recipe.history > 0
        if delayed and self._round_at is not None:
            if self._has_step is None:
                self._has_step = bool(self.history[0] > 0.0)
            if self._has_step:
                return self._round_at(flat, self.scale, self.seen).view(x.shape), self.scale
        held = (self.scale, self.history[0]) if delayed else None
        rounded, scale = self._round_first(flat, held, self.seen, self.recipe.margin)
        return rounded.view(x.shape), scale

    @torch.no_grad()
    def update(self) -> None:
        """End a step: take its amax into the history, and choose the scale of the next one.

        A step without a number, or one with an infinity or NaN, changes nothing.
        """
        sound = torch.isfinite(self.seen) & (self.seen > 0.0)
        moved = torch.cat((self.seen[None], self.history[:-1]))
        history = torch.where(sound, moved, self.history)
        amax = history[0] if self.recipe.amax == "most-recent" else history.amax()
        self.scale.copy_(torch.where(sound, scale_of(amax, self.recipe.margin), self.scale))
        self.history.copy_(history)
        self.seen.zero_()
        self._has_step = self._has_step or None


class _Fp8Multiply(torch.autograd.Function):
    """The product in FP8; its backward pass multiplies in the precision of what it is given."""

    @staticmethod
    def forward(
        context: Any,  # noqa: ANN401  (autograd's)
        x: torch.Tensor,
        weight: torch.Tensor,
        rounded: tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
        kernel: Fp8Kernel,
    ) -> torch.Tensor:
        """Return ``x @ weight.T`` of both in e4m3, each with its scale."""
        context.save_for_backward(x, weight)
        (left, right), scales = zip(*rounded, strict=True)
        if kernel == "scaled_mm":
            return multiply_scaled(left, right, scales, x.dtype)
        return multiply_emulated(left, right, (scales[0] * scales[1]).reciprocal(), x.dtype)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:  # noqa: ANN401
        """Return the gradients as if nothing had been rounded."""
        x, weight = context.saved_tensors
        by_x = gradient @ weight.to(gradient.dtype)
        by_weight = (gradient.t() @ x.to(gradient.dtype)).to(weight.dtype)
        return by_x, by_weight, None, None


class Fp8Linear(nn.Module):
    """A linear layer without bias that multiplies in e4m3; weights stay in their own precision.

    Scales are constant during a step and change after it: run each step in ``fp8_step``. Graphs of
    ``torch.compile`` do not contain the layer; ``compiler`` alone compiles its rounding.

    Args:
        n_in: Width of the input, a multiple of 16.
        n_out: Width of the output, a multiple of 16.
        recipe: How scales are chosen.
        kernel: What multiplies; by default ``fp8_kernel`` of the device of the input.
        compiler: Compiles the rounding of the input and of the weight, as one graph each; by
            default it is eager, with the same results. A layer with one is saved by its
            ``state_dict``, and not pickled as a whole. Layers share graphs if it returns the same
            object for the same function, as ``functools.cache(compiler)`` does.

    Raises:
        ValueError: If a width is not a multiple of 16, or the kernel is unknown.
    """

    def __init__(
        self,
        n_in: int,
        n_out: int,
        *,
        recipe: ScalingRecipe | None = None,
        kernel: Fp8Kernel | None = None,
        compiler: Compiler | None = None,
    ) -> None:
        super().__init__()
        if n_in < 1 or n_out < 1 or n_in % MULTIPLE or n_out % MULTIPLE:
            raise ValueError(
                f"FP8 layers need widths that are multiples of {MULTIPLE}, got {n_in} to {n_out}"
            )
        if kernel is not None and kernel not in get_args(Fp8Kernel):
            known = ", ".join(get_args(Fp8Kernel))
            raise ValueError(f"the kernel must be one of {known}, got {kernel!r}")
        self.recipe = recipe or ScalingRecipe()
        self.kernel = kernel
        self.weight = nn.Parameter(torch.randn(n_out, n_in) / math.sqrt(n_in))
        if compiler is None:
            self.input_scale = TensorScale(self.recipe)
            self.weight_scale = TensorScale(self.recipe)
        else:
            self.input_scale = TensorScale(self.recipe, compiler(round_at), compiler(round_first))
            self.weight_scale = TensorScale(
                self.recipe, compiler(round_weight_at), compiler(round_weight_first)
            )

    @torch.compiler.disable
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x @ weight.T``, in the dtype of ``x``.

        Args:
            x: Shape ``[..., n_in]``, also without a row.

        Raises:
            ValueError: If the kernel that was chosen cannot run there, the width differs, or the
                input has no floating-point dtype.
        """
        kernel = self.kernel or fp8_kernel(x.device)
        _check_kernel(kernel, x.device)
        n_out, n_in = self.weight.shape
        if not x.ndim or x.shape[-1] != n_in:
            raise ValueError(
                f"the input of this FP8 layer must have shape [..., {n_in}], got {list(x.shape)}"
            )
        if not x.is_floating_point():  # the product would be rounded to whole numbers
            raise ValueError(
                f"the input of an FP8 layer must be of a floating-point dtype, got {x.dtype}"
            )
        if kernel == "transformer_engine":
            return self._by_transformer_engine(x)
        flat = x.reshape(-1, n_in).contiguous()
        rounded = (self.input_scale.round(flat), self.weight_scale.round(self.weight))
        product = _Fp8Multiply.apply(flat, self.weight, rounded, kernel)
        return product.reshape(*x.shape[:-1], n_out)

    def extra_repr(self) -> str:
        """Return widths and kernel, for printing."""
        n_out, n_in = self.weight.shape
        return f"{n_in}, {n_out}, kernel={self.kernel or fp8_kernel(self.weight.device)}"

    def _by_transformer_engine(self, x: torch.Tensor) -> torch.Tensor:
        """Return the product by ``transformer_engine``, which keeps scales of its own."""
        if "_engine" not in self.__dict__:
            engine: Any = importlib.import_module("transformer_engine.pytorch")
            n_out, n_in = self.weight.shape
            made = engine.Linear(n_in, n_out, bias=False, params_dtype=self.weight.dtype)
            made.weight = self.weight
            self.__dict__["_engine"] = made  # no module of this one: it has the same weight
        return self.__dict__["_engine"](x)


def _check_kernel(kernel: Fp8Kernel, device: torch.device) -> None:
    """Check that a kernel runs on a device.

    Raises:
        ValueError: If it does not.
    """
    if kernel == "emulated":
        return
    capability = _capability(device)
    if capability is None or capability < FP8_CAPABILITY:
        has = f"{device.type} is none" if capability is None else f"this one has {capability}"
        raise ValueError(
            f"FP8 by {kernel} needs an NVIDIA GPU of compute capability "
            f"{'.'.join(map(str, FP8_CAPABILITY))} or more, and {has}; kernel='emulated' rounds the "
            "same numbers and multiplies them in float32: its results are those of FP8, its times "
            "are not"
        )
    if kernel == "transformer_engine" and not _has_transformer_engine():
        raise ValueError(
            "transformer_engine is not installed; kernel='scaled_mm' needs PyTorch only"
        )


@contextmanager
def fp8_step(model: nn.Module) -> Iterator[None]:
    """Hold all scales of a model's FP8 layers during a step, and update each once at its end.

    If a step calls a layer several times, the layer uses the largest amax of these calls. If a step
    raises an error, no scale changes. The original runs 62 forward passes in one such block, so it
    never updates a scale.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, Fp8Linear)]
    scales = [scale for layer in layers for scale in (layer.input_scale, layer.weight_scale)]
    for scale in scales:
        scale.seen.zero_()  # what was called outside of a step
    with _engine_step(layers):
        yield
    for scale in scales:
        scale.update()


@contextmanager
def _engine_step(layers: list[Fp8Linear]) -> Iterator[None]:
    """Enter the FP8 block of ``transformer_engine`` where a layer runs by it."""
    if not any(
        (layer.kernel or fp8_kernel(layer.weight.device)) == "transformer_engine"
        for layer in layers
    ):
        yield
        return
    engine: Any = importlib.import_module("transformer_engine.pytorch")
    recipes: Any = importlib.import_module("transformer_engine.common.recipe")
    ours = layers[0].recipe
    recipe = recipes.DelayedScaling(
        fp8_format=recipes.Format.E4M3,
        amax_history_len=max(ours.history, 1),
        amax_compute_algo=ours.amax.replace("-", "_"),
        margin=ours.margin,
    )
    with engine.fp8_autocast(enabled=True, fp8_recipe=recipe):
        yield
