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

_T: Final = torch.Tensor
# Answered by what is known of a pending tensor.
FACTS: Final = frozenset(
    {
        *(getattr(_T, name).__get__ for name in (
            "shape", "dtype", "device", "ndim", "layout", "requires_grad", "is_cuda", "is_cpu",
            "is_sparse", "is_quantized", "is_meta", "is_mkldnn", "is_nested",
        )),
        *(_T.size, _T.dim, _T.ndimension, _T.numel, _T.nelement, _T.stride, _T.element_size),
        *(_T.is_floating_point, _T.is_complex, _T.is_signed, _T.is_contiguous, _T.__len__),
        *(torch.is_floating_point, torch.is_complex, torch.numel, torch.is_signed),
        *(_T.__hash__,),
        # Of no tensor; the next call has other surroundings.
        torch._C._set_grad_enabled,  # noqa: SLF001
        # Ranges for the profiler, which PyTorch's optimizers open, too.
        torch.ops.profiler._record_function_enter_new,  # noqa: SLF001
        torch.ops.profiler._record_function_exit._RecordFunction,  # noqa: SLF001
    }
)  # fmt: skip
# Each computes everything that is pending in one block, called by any thread.
_settlers: list[Callable[[], None]] = []
# Not looked up at each use: ``hotpath.auto`` replaces the attribute while it is active.
_APPLY: Final = torch.autograd.Function.__dict__["apply"]


class Pending(torch.Tensor):
    """A result of a hot sequence that has not been run yet."""

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Compute what another thread has pending; in its own, the mode has been asked.

        Memory may be read without a call of ``__torch_dispatch__``: ``tolist``, ``torch.save``.
        """
        if func not in FACTS:
            for settle in _settlers:
                settle()
        with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001  (documented for this)
            return func(*args, **(kwargs or {}))

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
                "hotpath: a tensor is used whose value will not be computed, since an exception "
                "ended the sequence of calls that it is a result of"
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
    # In this order: at each moment another thread meets a class that settles, with either memory.
    real.__class__ = Pending
    real.__dict__["_became"] = weakref.ref(pending)
    torch._C._swap_tensor_impl(pending, real)  # noqa: SLF001
    pending.__class__ = torch.Tensor


def add_settler(settle: Callable[[], None]) -> None:
    """Register what computes pending tensors."""
    _settlers.append(settle)


def remove_settler(settle: Callable[[], None]) -> None:
    """Undo ``add_settler``."""
    _settlers.remove(settle)
