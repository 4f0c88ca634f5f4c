"""Multiply few rows by weights on a GPU: by cuBLAS, and by the sums of ``ivhl.mlff.painn``.

``python -m studies.few_rows`` prints the microseconds of a perceptron of two layers, 128 to 128 to
384 features, in a CUDA graph of ten of them, for some numbers of rows.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Final

import torch
from torch.nn.functional import silu

from ivhl.measure.engine import capture
from ivhl.mlff.painn import N_FEATURES, sum_of_products

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.mlff.painn import Product

ROWS: Final = (3, 12, 36, 72, 144, 192, 384)
PAIRS: Final = 10
CALLS: Final = 50
SAMPLES: Final = 5


def perceptrons(
    product: Product,
    x: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    bias: torch.Tensor,
) -> torch.Tensor:
    """Return what ten perceptrons make of rows, each from the first features of the one before."""
    for _ in range(PAIRS):
        hidden = silu(product(x, first) + bias)
        x = torch.tanh(product(hidden, second)[:, :N_FEATURES] + bias)
    return x


def microseconds(call: Callable[[], object]) -> float:
    """Return the least mean time of a call, between two events of the GPU."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    found: list[float] = []
    for _ in range(SAMPLES):
        begin.record()
        for _ in range(CALLS):
            call()
        end.record()
        torch.cuda.synchronize()
        found.append(1e3 * begin.elapsed_time(end) / CALLS)
    return min(found)


def main() -> int:
    """Print the table."""
    if not torch.cuda.is_available():
        print("error: this PyTorch sees no GPU", file=sys.stderr)
        return 2
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, microseconds")
    print(f"{'rows':>5} {'matmul':>8} {'sums':>8}")
    f = N_FEATURES
    for n_rows in ROWS:
        drawn = [torch.randn(n_rows, f), torch.randn(f, f), torch.randn(f, 3 * f), torch.randn(f)]
        inputs = tuple(x.cuda() / f**0.5 for x in drawn)
        row = []
        for product in (torch.matmul, sum_of_products):
            torch.compiler.reset()
            compiled = torch.compile(partial(perceptrons, product), fullgraph=True, dynamic=False)
            graph = capture(compiled, inputs)
            row.append(microseconds(partial(graph, *inputs)) / PAIRS)
        print(f"{n_rows:>5} {row[0]:>8.1f} {row[1]:>8.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
