"""Run public reports eagerly and compiled, without ivhl: ``python plain.py [NAME]...``.

It needs torch alone, and is the outside truth of the workloads beside it. Each report runs in a
process of its own, which prints what compiled code does that eager code does not.
"""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

import calls  # type: ignore[import-not-found]  # beside this script
import torch
from listed import REPORTS  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from collections.abc import Callable

    from listed import PublicReport
    from torch import Tensor

DEADLINE_S = 300


def make_run(report: PublicReport) -> tuple[Callable[..., Any], Callable[..., list[Tensor]]]:
    """Return what to compile, and the function that calls it and returns every tensor it leaves."""
    torch.manual_seed(0)
    draw = getattr(calls, report.inputs)
    inputs = [
        x.float() if x.is_floating_point() else x
        for x in draw(report.shapes, torch.Generator().manual_seed(7))
    ]
    maker = getattr(calls, f"make_{report.name}") if report.model else None
    model = maker(report.shapes) if maker else None

    def run(function: Callable[..., Any]) -> list[Tensor]:
        output = function(*inputs)
        left = list(output) if isinstance(output, tuple) else [output]
        if model is not None:
            model.zero_grad()
            left[0].sum().backward()
            left += [weight.grad for weight in model.parameters()]
        return [tensor.detach().clone() for tensor in left]

    return model or getattr(calls, report.name), run


def differences(eager: Tensor, compiled: Tensor) -> str:
    """Return how the tensors differ beyond rounding; empty if they do not."""
    if (eager.dtype, eager.shape) != (compiled.dtype, compiled.shape):
        return f"{eager.dtype} {tuple(eager.shape)} is {compiled.dtype} {tuple(compiled.shape)}"
    if not torch.allclose(eager.double(), compiled.double(), 1e-5, 1e-6, equal_nan=True):
        gap = (eager.double() - compiled.double()).abs().max()
        return f"off by {gap:.3g} of {eager.double().abs().max():.3g}"
    if eager.stride() != compiled.stride():
        return f"stride {eager.stride()} is {compiled.stride()}"
    return ""


def compare(report: PublicReport) -> str:
    """Return what differs, and what Dynamo counted."""
    call, run = make_run(report)
    compiled = torch.compile(call, dynamic=report.dynamic)
    eager = run(call)
    noted = len(getattr(call, "seen", ()))
    start = time.perf_counter()
    found = run(compiled)
    seconds = time.perf_counter() - start
    said = list(filter(None, map(differences, eager, found)))
    if noted and len(call.seen) == noted:  # type: ignore[attr-defined]
        said.append("a side effect is lost")
    for _ in range(4):
        run(compiled)
    counters = torch._dynamo.utils.counters  # noqa: SLF001
    breaks, graphs = sum(counters["graph_break"].values()), counters["stats"]["unique_graphs"]
    times = {call: 1e9, compiled: 1e9}
    for _ in range(20):
        for function, fastest in times.items():
            start = time.perf_counter()
            run(function)
            times[function] = min(fastest, time.perf_counter() - start)
    return (
        f"{'; '.join(said) or 'same'} | {breaks} breaks, {graphs} graphs, first call "
        f"{seconds:.1f} s, {times[call] / times[compiled]:.2f}x"
    )


def main() -> None:
    """Run the reports that are named, by default all."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    names = sys.argv[1:]
    if names[:1] == ["--here"]:
        print(compare(next(report for report in REPORTS if report.name == names[1])))
        return
    for report in REPORTS:
        if names and report.name not in names:
            continue
        command = [sys.executable, __file__, "--here", report.name]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=DEADLINE_S, check=False
            )
            said = done.stdout or next(
                (line for line in done.stderr.splitlines() if "Error: " in line), done.stderr
            )
        except subprocess.TimeoutExpired:
            said = f"over {DEADLINE_S} s"
        print(torch.__version__, report.number, report.name, said.strip(), sep=" | ", flush=True)


if __name__ == "__main__":
    main()
