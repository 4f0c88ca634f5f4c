"""A back end of ``torch.compile`` that runs each captured operation by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


def unfused(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """Return a captured graph as it is."""
    del inputs
    call: Callable[..., Any] = graph.forward
    return call
