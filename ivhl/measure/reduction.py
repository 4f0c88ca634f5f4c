"""Reduce the graphs of a case to the smallest script that shows what is wrong with it.

The graphs are those that Dynamo hands to the backend, so the script needs neither the project nor
ivhl. PyTorch's own minifier (``torch._functorch.fx_minifier``) leaves out operations as long as the
symptom stays.
"""

from __future__ import annotations

import inspect
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import torch

from ivhl.errors import counted
from ivhl.measure.failures import classify

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Graph = tuple[Any, list[Any]]

# Limits of the search for a smaller graph: how often the symptom is asked for, and for how long.
MOST_CHECKS: Final = 80
MOST_S: Final = 240.0
# Inputs of so few numbers are written down where drawn ones do not show the symptom.
FEW_NUMBERS: Final = 256
# What counts as wrong, of the largest value: far above what the order of operations moves.
TOLERANCE: Final = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 0.1}
WIDEST: Final = 2e-2

# Around the graph; the functions that judge while reducing are copied into it.
_SCRIPT = """\"\"\"{title}

Written by ivhl blame. Exit status 1: it shows what is reported; 0: it does not.
\"\"\"

from __future__ import annotations

import operator
import sys
from math import inf, nan

import torch
from torch import device, tensor

torch.set_num_threads({threads})
BACKEND, DYNAMIC = {backend!r}, {dynamic!r}
TOLERANCE, WIDEST = {tolerance!r}, {widest!r}


{module}

{functions}

def inputs():
    torch.manual_seed(0)
    return [
{inputs}
    ]


module = Repro()
expected = run(module, inputs())
try:
    compiled = torch.compile(module, backend=BACKEND, dynamic=DYNAMIC)
    found = wrong(expected, run(compiled, inputs()))
except Exception as error:
    found = f"{{type(error).__name__}}: {{error}}"
print(torch.__version__, "Python", sys.version.split()[0], found or "right")
sys.exit(bool(found))
"""


def write_script(
    graphs: Sequence[Graph],
    path: Path,
    *,
    backend: str,
    dynamic: bool | None,
    symptom: str,
    threads: int,
) -> dict[str, Any]:
    """Write the smallest script that shows a symptom; return what is known of it, as JSON.

    Args:
        graphs: Dynamo's graphs with the inputs of their first call.
        path: Where the script goes.
        backend: Backend that shows it.
        dynamic: As for ``torch.compile``.
        symptom: Failure class.
        threads: CPU threads.
    """
    checked = _Checked(backend, dynamic, symptom)
    for graph, inputs in graphs:
        if not checked(graph, inputs):
            continue
        before = _size(graph)
        small, left = _minified(graph, inputs, checked)
        forms = _forms(left, path)
        for known, (texts, values) in forms.items():
            if checked.plainly(small, values):
                module = _as_text(small)
                if module is None:
                    return {"script": "", "why": "its graph has parts that are no plain code"}
                path.write_text(
                    _SCRIPT.format(
                        title=f"torch.compile, PyTorch {torch.__version__}: {checked.seen}",
                        threads=threads, backend=backend, dynamic=dynamic, module=module,
                        tolerance=TOLERANCE, widest=WIDEST,
                        functions="\n\n".join(inspect.getsource(one) for one in (draw, run, wrong)),
                        inputs="\n".join(f"        {text}," for text in texts),
                    ).strip() + "\n",
                    encoding="utf-8",
                )  # fmt: skip
                return {
                    "script": str(path), "operations": _size(small), "of": before,
                    "inputs": known, "checks": checked.number, "seen": checked.seen,
                }  # fmt: skip
    text = "no graph shows it by itself" if graphs else "Dynamo handed no graph to the backend"
    return {"script": "", "why": f"{text} ({counted(len(graphs), 'graph')})"}


class _Checked:
    """Asks whether a graph on some inputs shows the symptom."""

    def __init__(self, backend: str, dynamic: bool | None, symptom: str) -> None:  # noqa: FBT001
        self._backend, self._dynamic, self._symptom = backend, dynamic, symptom
        self._until = time.monotonic() + MOST_S
        self.number = 0
        self.seen = ""

    def __call__(self, graph: Any, inputs: Sequence[Any]) -> bool:  # noqa: ANN401
        """Return whether it does; from its limits on, it does not, and the search ends."""
        if self.number >= MOST_CHECKS or time.monotonic() > self._until:
            return False
        self.number += 1
        return self.plainly(graph, inputs)

    def plainly(self, graph: Any, inputs: Sequence[Any]) -> bool:  # noqa: ANN401
        """Return whether it does, at any time."""
        torch._dynamo.reset()  # noqa: SLF001
        try:
            eager = run(graph, inputs)
        except Exception:  # noqa: BLE001  (half a graph need not run)
            return False
        compiled = torch.compile(graph, backend=self._backend, dynamic=self._dynamic)
        try:
            found = wrong(eager, run(compiled, inputs)) if eager else ""
        except Exception as error:  # noqa: BLE001  (the symptom)
            if classify(error, "compile") != self._symptom:
                return False
            self.seen = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            return True
        if found and self._symptom == "wrong":
            self.seen = found
            return True
        return False


def run(function: Callable[..., Any], inputs: Sequence[Any]) -> list[torch.Tensor]:
    """Return the outputs on copies of the inputs, and the gradients of what requires them."""
    given = [
        one.detach().clone().requires_grad_(one.requires_grad)
        if isinstance(one, torch.Tensor)
        else one
        for one in inputs
    ]
    outputs = function(*given)
    found = [
        one
        for one in (outputs if isinstance(outputs, tuple | list) else [outputs])
        if isinstance(one, torch.Tensor)
    ]
    leaves = [one for one in given if isinstance(one, torch.Tensor) and one.requires_grad]
    ends = [one for one in found if one.requires_grad]
    if ends and leaves:
        weights = [
            torch.arange(x.numel(), dtype=torch.float64).cos().reshape(x.shape).to(x.dtype)
            for x in ends
        ]
        slopes = torch.autograd.grad(ends, leaves, weights, allow_unused=True)
        found += [one for one in slopes if one is not None]
    return [one.detach() for one in found]


def wrong(eager: Sequence[torch.Tensor], compiled: Sequence[torch.Tensor]) -> str:
    """Return how compiled results differ from eager's by more than rounding; else nothing."""
    for number, (one, other) in enumerate(zip(eager, compiled, strict=False)):
        if one.shape != other.shape:
            return f"result {number} has another shape"
        if not (one.is_floating_point() or one.is_complex()):
            if not torch.equal(one, other):
                places = (one != other).nonzero()
                first = tuple(places[0].tolist())
                return (
                    f"result {number} differs in {len(places)} of {one.numel()} elements: at "
                    f"{list(first)} it is {other[first].item()} instead of {one[first].item()}"
                )
            continue
        good = torch.isfinite(one)
        if not torch.isfinite(other[good]).all():
            bad = int((~torch.isfinite(other[good])).sum())
            return f"result {number}: {bad} of {one.numel()} values are not finite"
        if one[good].numel():
            scale, apart = one[good].abs().max(), (one - other)[good].abs().max()
            limit = TOLERANCE.get(one.real.dtype if one.is_complex() else one.dtype, WIDEST)
            if apart > limit * scale:
                return f"result {number} is off by {float(apart):.3g} of {float(scale):.3g}"
    return ""


def _minified(graph: Any, inputs: list[Any], checked: _Checked) -> Graph:  # noqa: ANN401
    """Return a smaller graph that shows it, or the graph itself."""
    smallest: list[Graph] = [(graph, inputs)]

    def fails(one: Any, given: Sequence[Any]) -> bool:  # noqa: ANN401
        shows = checked(one, given)
        if shows and _size(one) <= _size(smallest[0][0]):
            smallest[0] = one, list(given)
        return shows

    with suppress(Exception, SystemExit):  # what it found before counts
        from torch._functorch.fx_minifier import minifier  # noqa: PLC0415

        minifier(graph, inputs, fails, dump_state=lambda *_, **__: None)
    return smallest[0]


def _size(graph: Any) -> int:  # noqa: ANN401
    operations = ("call_function", "call_method", "call_module")
    return sum(node.op in operations for node in graph.graph.nodes)


def _as_text(graph: Any) -> str | None:  # noqa: ANN401
    """Return the source of a module with this graph; ``None`` if it has none."""
    from torch._dynamo.debug_utils import NNModuleToString  # noqa: PLC0415

    if not NNModuleToString.can_convert_to_string(graph):
        return None
    lines = str(NNModuleToString.convert(graph)).strip().splitlines()
    # It imports all of torch.nn for modules that this one may lack.
    plain = [
        line.rstrip() for line in lines if "import *" not in line or "torch.nn." in str(graph)
    ]
    return "\n".join(plain).strip() + "\n"


def _forms(inputs: Sequence[Any], path: Path) -> dict[str, tuple[list[str], list[Any]]]:
    """Return the inputs as source and as values, the form to be preferred first."""
    torch.manual_seed(0)
    drawn = [_drawn(one) for one in inputs]
    forms = {"drawn": ([text for text, _ in drawn], [value for _, value in drawn])}
    numbers = sum(one.numel() for one in inputs if isinstance(one, torch.Tensor))
    if numbers <= FEW_NUMBERS:
        forms["written down"] = [_written(one) for one in inputs], list(inputs)
    file = path.with_name("inputs.pt")
    with suppress(Exception):  # 2.5.1 cannot save on Python 3.13
        torch.save(list(inputs), file)
        texts = [
            f"torch.load({file.name!r}, weights_only=True)[{number}]"
            for number in range(len(inputs))
        ]
        forms[f"in {file.name}"] = texts, list(inputs)
    return forms


def draw(
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: torch.dtype,
    low: int,
    high: int,
    *,
    grad: bool,
) -> torch.Tensor:
    """Return random numbers; integers from low to high."""
    if dtype == torch.bool:
        found = torch.randint(0, 2, shape) > 0
    elif dtype.is_floating_point or dtype.is_complex:
        found = torch.randn(shape, dtype=dtype)
    else:
        found = torch.randint(low, high + 1, shape, dtype=dtype)
    laid = torch.empty_strided(shape, stride, dtype=dtype).copy_(found)
    return laid.requires_grad_(grad)


def _drawn(one: Any) -> tuple[str, Any]:  # noqa: ANN401
    if not isinstance(one, torch.Tensor):
        return repr(one), one
    low = high = 0
    if not (one.is_floating_point() or one.is_complex()) and one.numel():
        low, high = int(one.min()), int(one.max())
    about = tuple(one.shape), tuple(one.stride()), one.dtype, low, high
    text = f"draw({', '.join(map(repr, about))}, grad={one.requires_grad})"
    return text, draw(*about, grad=one.requires_grad)


def _written(one: Any) -> str:  # noqa: ANN401
    if not isinstance(one, torch.Tensor):
        return repr(one)
    text = f"tensor({one.tolist()!r}, dtype={one.dtype})"
    shape, stride = tuple(one.shape), tuple(one.stride())
    if not one.is_contiguous():
        text = f"torch.empty_strided({shape}, {stride}, dtype={one.dtype}).copy_({text})"
    return f"{text}.requires_grad_({one.requires_grad})" if one.requires_grad else text
