"""A group norm whose groups are single channels, then SiLU, on a CPU: wrong, or memory is overwritten.

Found in November 2026 by diffusers' autoencoder. Kind: forward pass.
"""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.GroupNorm(32, 32), torch.nn.SiLU()).eval()
x = torch.randn(1, 32, 16, 16)
with torch.no_grad():
    eager, compiled = model(x), torch.compile(model)(x)
print("like eager", torch.allclose(eager, compiled, atol=1e-4), flush=True)
