"""pypose 0.9.5, poses, forward: failed in py3.12-torch2.13.0.

failed in phase compile: RecursionError: maximum recursion depth exceeded at lietensor/lietensor.py:950
Checks it without ivhl:

    uv run --no-project --python 3.12 --with torch==2.13.0 --with pypose==0.9.5 pypose-poses-forward.py
"""

import dataclasses
import runpy
import sys
from pathlib import Path

import torch

FILE = runpy.run_path(str(Path(__file__).parent / "../functions/pypose_cases.py"))

torch.set_num_threads(1)  # as in the record
torch._logging.set_logs(graph_breaks=True, dynamo=20)  # 20: also functions that are given up
STEP = False


def make():
    """Return the function or the model, with the weights of one seed."""
    torch.manual_seed(0)
    made = FILE['Poses']()
    made = made() if isinstance(made, type) else made
    return made.train(STEP) if isinstance(made, torch.nn.Module) else made


def inputs(dtype):
    """Return positional inputs and those by name, of one seed; floats in this dtype."""
    torch.manual_seed(1)

    def cast(x):
        x = x.to(dtype) if torch.is_tensor(x) and x.is_floating_point() else x
        return x.requires_grad_() if STEP and torch.is_tensor(x) and x.is_floating_point() else x

    arguments = [
        torch.randn((8, 100, 3), dtype=torch.float64),
    ]
    named = {}
    return [cast(x) for x in arguments], {name: cast(x) for name, x in named.items()}


def tensors(value, path="output"):
    """Yield each tensor of an output with its path."""
    if torch.is_tensor(value):
        yield path, value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from tensors(one, f"{path}.{name}")
    elif isinstance(value, (list, tuple)):
        for number, one in enumerate(value):
            yield from tensors(one, f"{path}.{number}")
    elif dataclasses.is_dataclass(value) or (hasattr(value, "__dict__") and not callable(value)):
        yield from tensors(vars(value), path)


def run(dtype, compiled):
    """Return outputs, and of a step all gradients, by their paths."""
    function = make()
    is_model = isinstance(function, torch.nn.Module)
    if is_model:
        function = function.to(dtype)
    arguments, named = inputs(dtype)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    with torch.set_grad_enabled(STEP):
        outputs = (torch.compile(function) if compiled else function)(*arguments, **named)
    found = dict(tensors(outputs))
    if STEP:
        draws = torch.Generator().manual_seed(3)
        loss = sum(
            (one * torch.randn(one.shape, generator=draws, dtype=torch.float64).to(one.dtype)).sum()
            for one in found.values()
            if one.requires_grad
        )
        if isinstance(loss, int):
            raise ValueError("no output depends on a parameter or an input by its gradient")
        loss.backward()
        leaves = dict(function.named_parameters()) if is_model else {}
        leaves.update(tensors([arguments, named], "input"))
        found.update((f"grad.{name}", x.grad) for name, x in leaves.items() if x.grad is not None)
    if not torch.equal(before, torch.get_rng_state()):
        print("random numbers are drawn: compiled code may draw others")
    return {name: x.detach().cpu() for name, x in found.items()}


def distance(one, other):
    """Return the largest difference of two tensors; of places that are not finite in both, none."""
    if one.shape != other.shape:
        return float("inf")
    one, other = (x.to(torch.complex128 if x.is_complex() else torch.float64) for x in (one, other))
    same = (one == other) | (one.isnan() & other.isnan())
    off = (one - other).abs().masked_fill(same, 0.0).nan_to_num(nan=float("inf"))
    return float(off.max()) if off.numel() else 0.0


def attempt(what, *settings):
    """Return what a run returns; print the exception and return nothing if it raises."""
    try:
        return run(*settings)
    except Exception as error:
        kind = f"{type(error).__module__}.{type(error).__name__}"
        print(f"{what} raises {kind}: {error}"[:3000])


print("torch", torch.__version__, "Python", sys.version.split()[0])
exact = attempt("eager float64", torch.float64, False)
eager = attempt("eager float32", torch.float32, False)
compiled = attempt("compiled float32", torch.float32, True)
if compiled is None or eager is None:
    sys.exit(2)
exact = eager if exact is None else exact
sizes = {name: float(x.abs().max()) if x.numel() else 0.0 for name, x in exact.items()}
largest = max([size for name, size in sizes.items() if name.startswith("grad.")], default=0.0)
wrong = sorted(exact.keys() ^ compiled.keys())
print(f"{'differences up to':32} {'eager-float64':>14} {'compiled-float64':>17}", end=" ")
print(f"{'compiled-eager':>15} {'value up to':>12}")
for name in sorted(exact.keys() & compiled.keys() & eager.keys()):
    # A gradient may vanish, and is then rounding alone: it counts beside all gradients.
    scale = max(sizes[name], largest if name.startswith("grad.") else 0.0)
    off = [
        distance(eager[name], exact[name]),
        distance(compiled[name], exact[name]),
        distance(compiled[name], eager[name]),
    ]
    figures = f"{off[0]:14.3g} {off[1]:17.3g} {off[2]:15.3g} {sizes[name]:12.3g}"
    print(f"{name[:32]:32} {figures}")
    if off[1] > max(10 * off[0], 1e-5 * scale):
        wrong.append(name)
print("wrong:", ", ".join(wrong)) if wrong else print("compiled code is as exact as eager")
sys.exit(bool(wrong))
