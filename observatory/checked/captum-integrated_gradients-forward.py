"""captum 0.9.0, integrated_gradients, forward: works in py3.13-torch2.15.0, 0.01x as fast as eager.

Dynamo of 2.15.0 traces captum's functions again at each call, since they differentiate by results of
their own (tests/e2e/reproducers/gradient_beside_result.py is the cause without captum). The record of
2.14.1 is 76 times as fast, relative to eager code. Checks it without ivhl:

    uv run --no-project --python 3.13 --with torch==2.15.0 --with captum==0.9.0 captum-integrated_gradients-forward.py
"""

import sys
import time
from pathlib import Path

import torch
from torch._dynamo.utils import counters

sys.path.insert(0, str(Path(__file__).parent / "../functions"))
from captum_cases import Attribution

torch.set_num_threads(1)
torch.manual_seed(0)
model = Attribution().eval()
# Dynamo alone decides it, so that no C++ is compiled.
compiled = torch.compile(model, backend="eager")
x = torch.randn(8, 16)


def seconds(function):
    """Return seconds of a call, by the fastest of 10."""
    taken = []
    for _ in range(10):
        start = time.process_time()
        function(x)
        taken.append(time.process_time() - start)
    return min(taken)


off = float((compiled(x) - model(x)).abs().max())
for _ in range(2):
    compiled(x)
before = counters["frames"]["total"]
call = seconds(compiled)
again = counters["frames"]["total"] - before
print("torch", torch.__version__, "differs from eager code by up to", f"{off:.3g}")
print(f"functions traced in 10 later calls: {again}; {call / seconds(model):.1f}x eager's CPU time")
sys.exit(2 if again else 0)
