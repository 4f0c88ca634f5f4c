"""Run reports of the compiler eagerly and compiled, without ivhl: ``python plain.py [NAME]...``.

The outside truth of the benchmarks in ``benchmarks/reports``: a process per report, which loads
``calls.py`` by its path. It prints the report, ``same`` or what differs, and the numbers of graph
breaks and recompiles.
"""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
import time
import warnings
from pathlib import Path

import torch
from torch.utils._pytree import tree_flatten

HERE = Path(__file__).parent / "benchmarks" / "reports"


def declared():
    """Yield number, name, shapes and options of each report, read from the declarations."""
    for node in ast.walk(ast.parse((HERE / "__init__.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "_report":
            number, name, *shapes = (eval(ast.unparse(one)) for one in node.args)  # noqa: S307
            options = {one.arg: ast.literal_eval(one.value) for one in node.keywords}
            yield number, name, tuple(shapes), options


def run(number, name, shapes, options):
    """Return what differs between eager and compiled code."""
    spec = importlib.util.spec_from_file_location("calls", HERE / "calls.py")
    calls = importlib.util.module_from_spec(spec)
    sys.modules["calls"] = calls
    spec.loader.exec_module(calls)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    make = getattr(calls, options.get("inputs", "make_floats"))
    dtype = getattr(torch, options.get("dtype", "float32"))
    inputs = [
        x.to(dtype) if x.is_floating_point() else x
        for x in make(shapes, torch.Generator().manual_seed(7))
    ]
    model = getattr(calls, f"make_{name}")(shapes) if options.get("model") else None
    call = model or getattr(calls, name)
    compiled = torch.compile(call, dynamic=options.get("dynamic"))

    def once(function):
        if model is not None:
            model.zero_grad()
        output = function(*inputs)
        leaves = tree_flatten(output)[0]
        if model is not None and any(p.requires_grad for p in model.parameters()):
            if options.get("passes") != "forward":
                sum(leaf.sum() for leaf in leaves).backward()
                leaves += [p.grad for p in model.parameters() if p.grad is not None]
        return [leaf.detach().clone(memory_format=torch.preserve_format) for leaf in leaves]

    def fastest(function):
        best = 1e9
        for _ in range(20):
            start = time.perf_counter()
            once(function)
            best = min(best, time.perf_counter() - start)
        return best

    eager = once(call)
    noted = len(getattr(type(model), "seen", ()))
    start = time.perf_counter()
    found = once(compiled)
    seconds = time.perf_counter() - start
    lost = noted and len(type(model).seen) == noted
    said = [f"side effect lost"] if lost else []
    for e, c in zip(eager, found, strict=True):
        if (e.dtype, e.shape) != (c.dtype, c.shape):
            said.append(f"{e.dtype} {tuple(e.shape)} is {c.dtype} {tuple(c.shape)}")
        elif not torch.allclose(e.double(), c.double(), rtol=1e-5, atol=1e-6, equal_nan=True):
            gap = (e.double() - c.double()).abs()
            said.append(f"off by {gap.max():.3g} of {e.double().abs().max():.3g}, nan {int(c.double().isnan().sum())}")
        elif e.stride() != c.stride():
            said.append(f"stride {e.stride()} is {c.stride()}")
    counters = torch._dynamo.utils.counters
    breaks = sum(counters["graph_break"].values())
    for _ in range(4):
        once(compiled)
    frames = counters["stats"].get("unique_graphs", 0)
    speedup = fastest(call) / fastest(compiled)
    return f"{'; '.join(said) or 'same'} | breaks {breaks}, graphs {frames}, first {seconds:.1f} s, speedup {speedup:.2f}"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["--one"]:
        report = next(one for one in declared() if one[1] == sys.argv[2])
        try:
            print(run(*report))
        except Exception as error:
            last = [line for line in str(error).splitlines() if line.strip()]
            said = next((line for line in last if "rror" in line), last[0] if last else "")
            print(f"{type(error).__name__}: {said[:110]}")
        sys.exit()
    for number, name, *_ in declared():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        command = [sys.executable, __file__, "--one", name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            said = done.stdout.strip() or f"exit code {done.returncode}: {done.stderr[-200:]}"
        except subprocess.TimeoutExpired:
            said = "over 300 s"
        print(torch.__version__, number, name, said, sep=" | ", flush=True)
