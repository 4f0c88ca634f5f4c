"""gpytorch 1.15.2, posterior, forward: failed in py3.13-torch2.11.0.

Compiled code takes data of one length, recompiles for a second, and uses the second's sizes for a
third. The records of 2.11.0 on 3.12 and 3.14, and of 2.12.1 on 3.13, work. Checks it without ivhl:

    uv run --no-project --python 3.13.0 --with torch==2.11.0 --with gpytorch==1.15.2 gpytorch-posterior-forward.py
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent / "../functions"))
from gpytorch_cases import Posterior

torch.set_num_threads(1)
torch.manual_seed(0)
model = Posterior().eval()
compiled = torch.compile(model)
failed = []
with torch.no_grad():
    for length in (16, 17, 18):
        inputs = torch.randn(8, 2), torch.randn(length, 2), torch.randn(length)
        eager = model(*inputs)
        try:
            found = compiled(*inputs)
        except RuntimeError as error:
            print(f"{length}: {error}")
            failed.append(length)
        else:
            off = max(float((a - b).abs().max()) for a, b in zip(eager, found, strict=True))
            print(f"{length}: differs from eager code by up to {off:.3g}")
sys.exit(2 if failed else 0)
