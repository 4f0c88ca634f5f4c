"""A stack of layers compiles in every plan, on each release."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from ivhl.surgical import StackConfiguration, TransformerStack
from ivhl.surgical.stack import make_weights

if TYPE_CHECKING:
    from ivhl.surgical.stack import LinearKind

# PyTorch 2.6.0's own, of its cache.
pytestmark = pytest.mark.filterwarnings("ignore:Skipping serialization:UserWarning")


@pytest.mark.parametrize(
    ("plan", "kind"), [("pointwise", "linear"), ("whole", "linear"), ("sdpa", "fp8")]
)
def test_a_planned_stack_compiles_and_gives_what_eager_code_gives(
    plan: str, kind: LinearKind
) -> None:
    """A fallback to eager code is a warning, and so a failure here."""
    configuration = StackConfiguration(n_layers=1, n_hidden=32, n_heads=4, n_inner=64)
    weights = make_weights(configuration, torch.Generator().manual_seed(0))
    x = torch.randn(2, 16, 32, generator=torch.Generator().manual_seed(1))
    results = []
    for name in ("eager", plan):
        stack = TransformerStack(configuration, name, linear=kind)
        stack.load_weights(weights)
        with torch.no_grad():
            results.append(stack(x))
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)
