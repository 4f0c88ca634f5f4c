"""What results depend on beside arguments, and the stacks of modes of PyTorch."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import torch
import torch._functorch.config
import torch._inductor.config
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

Surroundings = tuple[bool, torch.dtype]  # whether gradients are recorded, and the default dtype

_autograd: Final = torch._C._autograd  # noqa: SLF001
top_hooks: Final = getattr(_autograd, "_top_saved_tensors_default_hooks", None)
_any_autocast: Final = torch._C._is_any_autocast_enabled  # noqa: SLF001
_dispatch_modes: Final = torch._C._len_torch_dispatch_stack  # noqa: SLF001
_inference: Final = torch.is_inference_mode_enabled
_transforms: Final = torch._C._are_functorch_transforms_active  # noqa: SLF001
_is_tracing: Final = torch._C._is_tracing  # noqa: SLF001
_is_grad_enabled: Final = torch.is_grad_enabled
_default_dtype: Final = torch.get_default_dtype
_mode_at: Final = torch._C._get_function_stack_at  # noqa: SLF001
n_modes: Final = torch._C._len_torch_function_stack  # noqa: SLF001
pop_mode: Final = torch._C._pop_torch_function_stack  # noqa: SLF001
push_mode: Final = torch._C._push_on_torch_function_stack  # noqa: SLF001
# Not of the class, whose own way takes 7 us more, and tells Dynamo that a program has a mode.
push_dispatch_mode: Final = torch._C._push_on_torch_dispatch_stack  # noqa: SLF001
pop_dispatch_mode: Final = torch._C._pop_torch_dispatch_stack  # noqa: SLF001
# What ``torch.no_grad`` calls; the context manager itself takes two microseconds of a step.
set_grad_enabled: Final = torch._C._set_grad_enabled  # noqa: SLF001


def is_top(mode: torch.overrides.TorchFunctionMode) -> bool:
    """Return whether a mode is the innermost one."""
    n = n_modes()
    return n > 0 and _mode_at(n - 1) is mode


def surroundings_now(n_dispatch_modes: int) -> Surroundings | None:
    """Return what else results depend on, or ``None`` where calls are not recorded.

    Args:
        n_dispatch_modes: How many are ours.
    """
    if (
        _any_autocast()
        or _inference()
        or _dispatch_modes() != n_dispatch_modes
        or n_modes()
        or _transforms()
        or _is_tracing()
        or forward_ad._current_level >= 0  # noqa: SLF001
        or (top_hooks is not None and top_hooks(True) is not None)  # noqa: FBT003
    ):
        return None
    return _is_grad_enabled(), _default_dtype()


@contextlib.contextmanager
def restored(surroundings: Surroundings) -> Iterator[None]:
    """Restore what was around calls that waited, and has changed since."""
    grad, dtype = surroundings
    before = torch.get_default_dtype()
    with contextlib.ExitStack() as stack:
        if _dispatch_modes():
            stack.enter_context(_disable_current_modes())
        if _inference():
            stack.enter_context(torch.inference_mode(mode=False))
        if _any_autocast():
            for device in ("cpu", "cuda"):
                stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(torch.set_grad_enabled(grad))
        torch.set_default_dtype(dtype)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


class CompilerSettings:
    """Settings of the compiler, while code of a block is compiled."""

    def __init__(self) -> None:
        wanted = [
            # Draw random numbers as eager code does.
            (torch._inductor.config, "fallback_random", True),  # noqa: SLF001
            # A program may run backward twice with retain_graph; eagerly that works.
            (torch._functorch.config, "donated_buffer", False),  # noqa: SLF001
        ]
        self.before = []
        for module, name, value in wanted:
            if hasattr(module, name):
                self.before.append((module, name, getattr(module, name)))
                setattr(module, name, value)

    def restore(self) -> None:
        """Restore them."""
        for module, name, value in self.before:
            setattr(module, name, value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()
