"""Compile a warm-up function, as every process must before it compiles a case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def use_compiler(
    *,
    skip_isa_check: bool,
    device: str = "cpu",
    compiler: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
) -> None:
    """Compile a throwaway, so that one-time costs do not count as compile time.

    These are: importing Inductor, finding the compiler and the vector instructions, and
    precompiling headers.
    """
    import torch  # noqa: PLC0415

    if skip_isa_check:
        from torch._inductor import config  # noqa: PLC0415

        config.cpp.vec_isa_ok = True
    compiled = compiler(throwaway) if compiler else torch.compile(throwaway, dynamic=False)
    compiled(torch.ones(64, device=device))


def throwaway(x: Any) -> Any:  # noqa: ANN401  (torch is not imported at the top of this module)
    """Compute something trivial, to be compiled once."""
    return x * 2 + 1


def picked_instructions() -> str | None:
    """Return the vector instructions that Inductor picked; ``None`` before PyTorch 2.5."""
    try:
        from torch._inductor.cpu_vec_isa import pick_vec_isa  # noqa: PLC0415  (since 2.5)
    except ImportError:
        return None
    return str(pick_vec_isa())
