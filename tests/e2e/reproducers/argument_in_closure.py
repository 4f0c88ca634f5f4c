"""A function made after a graph break that uses an argument of the function around it.

Found in November 2026 by vector-quantize-pytorch and torchsde. Kind: Dynamo, on Python 3.13 and later.
"""

import torch
from torch._dynamo.testing import CompileCounter


def scaled(x):
    torch._dynamo.graph_break()
    return (lambda y: x + y)(x * 2).sin()


compiler = CompileCounter()
torch.compile(scaled, backend=compiler)(torch.ones(3))
print("compiled operations", compiler.op_count)
