"""A stack of layers compiles in every plan, on each release."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from ivhl.compile import CompileFallbackWarning
from ivhl.surgical import StackConfiguration, TransformerStack
from ivhl.surgical.stack import make_weights

if TYPE_CHECKING:
    from ivhl.surgical.stack import LinearKind


@pytest.mark.parametrize(
    ("plan", "kind"),
    [
        pytest.param("pointwise", "linear", marks=pytest.mark.full),
        ("whole", "linear"),
        pytest.param("sdpa", "fp8", marks=pytest.mark.full),
    ],
)
def test_a_planned_stack_compiles_and_gives_what_eager_code_gives(
    plan: str, kind: LinearKind
) -> None:
    """A fallback to eager code is a warning: a failure here, as no other warning is."""
    configuration = StackConfiguration(n_layers=1, n_hidden=32, n_heads=4, n_inner=64)
    weights = make_weights(configuration, torch.Generator().manual_seed(0))
    x = torch.randn(2, 16, 32, generator=torch.Generator().manual_seed(1))
    results = []
    for name in ("eager", plan):
        stack = TransformerStack(configuration, name, linear=kind)
        stack.load_weights(weights)
        # PyTorch's own ones, as errors, would end the compilation.
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", CompileFallbackWarning)
            results.append(stack(x))
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)
