"""A tensor whose value is not computed yet.

It knows what the record knows of the result, shape, strides, dtype, device and whether it requires a
gradient, and has no memory. Before anything reads it, it turns into the result: the same object of
Python, with the implementation and the class of the tensor that was computed.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.hotpath.calls import Facts

# What computes everything that is pending, in the thread of the recorder.
_settlers: list[Callable[[], None]] = []
# Not looked up at each use: ``hotpath.auto`` replaces the attribute while it is active.
_APPLY: Final = torch.autograd.Function.__dict__["apply"]


class Pending(torch.Tensor):
    """A result of a hot sequence that has not been run yet."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # noqa: SLF001  (documented for this)

    @classmethod
    def __torch_dispatch__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Compute what is pending, then run the operation: something that is not recorded reads."""
        for settle in _settlers:
            settle()
        return func(*_computed(args), **_computed(kwargs or {}))


def _computed(value: Any) -> Any:
    """Return arguments with the computed tensors in the place of pending ones.

    Raises:
        RuntimeError: If one is not computed.
    """
    if type(value) is Pending:
        # Code in C++ may have taken the implementation before it was exchanged.
        became = value.__dict__.get("_became")
        real = became() if became is not None else None
        if real is None or type(real) is Pending:
            raise RuntimeError(
                "hotpath: a tensor whose value is not computed yet is used outside of the thread, "
                "or after the block, of the hotpath.auto that made it"
            )
        return real
    if isinstance(value, tuple):
        return tuple([_computed(one) for one in value])
    if isinstance(value, list):
        return [_computed(one) for one in value]
    if isinstance(value, dict):
        return {name: _computed(one) for name, one in value.items()}
    return value


class _NoGradientYet(torch.autograd.Function):
    """Makes a pending tensor that requires a gradient, and refuses one that arrives.

    Code in C++ may take the place of a pending tensor in the graph of autograd. The gradient would
    be lost without a word.
    """

    @staticmethod
    def forward(ctx: Any, _anchor: torch.Tensor, facts: Facts) -> Pending:  # noqa: ARG004
        return _without_history(facts)

    @staticmethod
    def backward(ctx: Any, *_gradients: torch.Tensor) -> Any:  # noqa: ARG004
        raise RuntimeError(
            "hotpath: code in C++ took a tensor before its value was computed, so its gradient "
            "would be lost; call that code outside of hotpath.auto or in a "
            "hotpath.boundary(name, compile=False)"
        )


@functools.cache
def _anchor() -> torch.Tensor:
    return torch.zeros((), requires_grad=True)


def _without_history(facts: Facts) -> Pending:
    made: Pending = torch.Tensor._make_wrapper_subclass(  # noqa: SLF001  (documented for this)
        Pending, facts.shape, strides=facts.stride, dtype=facts.dtype, device=facts.device
    )
    return made


def make_pending(facts: Facts) -> Pending:
    """Return a pending tensor; called with no mode active."""
    if not facts.requires_grad:
        return _without_history(facts)
    with torch.enable_grad():
        made: Pending = _APPLY.__get__(None, _NoGradientYet)(_anchor(), facts)
    return made


def become(pending: Pending, real: torch.Tensor) -> None:
    """Turn a pending tensor into a computed one; ``real`` is the pending one from then on.

    As ``torch.utils.swap_tensors``, which refuses a tensor of which weak references exist. Here they
    are welcome: they stay with the object.
    """
    pending.__class__ = torch.Tensor
    real.__class__ = Pending
    torch._C._swap_tensor_impl(pending, real)  # noqa: SLF001
    real.__dict__["_became"] = weakref.ref(pending)


def add_settler(settle: Callable[[], None]) -> None:
    """Register what computes pending tensors."""
    _settlers.append(settle)


def remove_settler(settle: Callable[[], None]) -> None:
    """Undo ``add_settler``."""
    _settlers.remove(settle)
