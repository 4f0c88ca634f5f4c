"""The engines of variants: ``torch.compile``, AOTInductor, TorchScript, hot paths, eager and others.

Each engine is a compiler in the sense of ``Variant.compiles``: it takes a function or a module and
returns one with the same arguments and results. All compile lazily, at the first call and with its
inputs, so that the time of the first call includes all their work.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map_only

from ivhl.measure.failures import UnsupportedHereError
from ivhl.measure.hotpaths import HotPaths

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.workload import Engine

    Function = Callable[..., Any]
    Compiler = Callable[[Function], Function]

# The profiling executor of TorchScript watches one or two runs, then specialises its code.
TORCHSCRIPT_RUNS = 3
# Folder of the packages of a case.
PACKAGES_VARIABLE = "IVHL_PACKAGES"
_packages = itertools.count()
# Runs before capturing, enough for Inductor to compile and load its kernels.
RUNS_BEFORE_CAPTURE = 3


def compiler_of(engine: Engine | str, torch_compile: Compiler) -> Compiler:
    """Return the compiler of an engine.

    Args:
        engine: Engine of the variant.
        torch_compile: ``torch.compile`` with the variant's arguments, also of a back end.
    """
    compilers: dict[str, Compiler] = {
        "compile": torch_compile,
        "cuda-graph": lambda function: _at_first_call(capture, torch_compile(function)),
        "aotinductor": partial(_at_first_call, export),
        "torchscript": partial(_at_first_call, trace),
        "hotpath": HotPaths().compiler,
        "eager": lambda function: function,
    }
    return compilers.get(engine, torch_compile)


def _at_first_call(
    make: Callable[[Function, tuple[Any, ...]], Function], function: Function
) -> Function:
    """Return a function that calls ``make`` with the inputs of its first call."""
    made: list[Function] = []

    def call(*inputs: Any) -> Any:  # noqa: ANN401  (any pytree)
        if not made:
            made.append(make(function, inputs))
        return made[0](*inputs)

    return call


def returning_copies(compiled: Function) -> Function:
    """Return a compiled part whose results outlive the next run of its CUDA graph.

    PyTorch frees what graphs have returned when the next compiled function is called, even if that
    function reads it. So what is compiled in parts has to copy between them.
    """

    def call(*inputs: Any) -> Any:  # noqa: ANN401  (any pytree)
        return tree_map_only(torch.Tensor, torch.clone, compiled(*inputs))

    return call


def trace(function: Function, inputs: tuple[Any, ...]) -> Function:
    """Return the function as TorchScript, frozen if it is a module, and warmed up.

    Args:
        function: Its inputs and outputs are tensors; its control flow must not depend on values.
        inputs: Inputs for tracing and warm-up.
    """
    if isinstance(function, torch.nn.Module):
        traced = torch.jit.freeze(torch.jit.trace(function.eval(), inputs, check_trace=False))
    else:
        traced = torch.jit.trace(function, inputs, check_trace=False)
    for _ in range(TORCHSCRIPT_RUNS):
        traced(*inputs)
    return traced  # type: ignore[no-any-return]


def export(function: Function, inputs: tuple[Any, ...]) -> Function:
    """Export the function, compile it ahead of time into a package, and load that package.

    If ``IVHL_PACKAGES`` names a folder with a package of an earlier process of the case, only loads
    that package: this is the cost of a second process.

    Args:
        function: Its inputs and outputs are tensors.
        inputs: Inputs with the shapes and the device to compile for.

    Raises:
        UnsupportedHereError: If this release cannot make such a package.
    """
    import torch._inductor as inductor  # noqa: PLC0415  (seconds, and only here)

    packs = hasattr(inductor, "aoti_compile_and_package")
    if not (packs or hasattr(torch._export, "aot_load")):  # noqa: SLF001
        raise UnsupportedHereError(
            f"PyTorch {torch.__version__} cannot load from Python what AOTInductor makes: it has "
            "neither torch._inductor.aoti_load_package nor torch._export.aot_load"
        )
    kept = _kept_package()
    if packs and kept is not None and kept.is_file():
        return inductor.aoti_load_package(str(kept))  # type: ignore[no-any-return]
    module = function if isinstance(function, torch.nn.Module) else _Calling(function)
    with torch.no_grad():
        program = torch.export.export(module.eval(), inputs, strict=False)
    if not packs:
        library = inductor.aot_compile(program.module(), inputs)
        return torch._export.aot_load(library, inputs[0].device.type)  # type: ignore[no-any-return]  # noqa: SLF001
    path = inductor.aoti_compile_and_package(program, package_path=str(kept or _new_package()))
    return inductor.aoti_load_package(path)  # type: ignore[no-any-return]


def _new_package() -> Path:
    """Return a path in Inductor's cache folder, which is removed with the case."""
    return Path(tempfile.mkdtemp(dir=os.environ.get("TORCHINDUCTOR_CACHE_DIR")), "model.pt2")


def _kept_package() -> Path | None:
    """Return the path at which the next package is kept; ``None`` if packages are not kept.

    The path is a number: all processes of a case make their packages in the same order.
    """
    folder = os.environ.get(PACKAGES_VARIABLE)
    if folder is None:
        return None
    Path(folder).mkdir(exist_ok=True)
    return Path(folder, f"{next(_packages)}.pt2")


class _Calling(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Wraps a function as a module, because torch.export accepts only modules."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self._function = function

    def forward(self, *inputs: Any) -> Any:  # noqa: ANN401  (any pytree)
        return self._function(*inputs)


def capture(function: Function, inputs: tuple[Any, ...]) -> Function:
    """Return the function as a CUDA graph: inputs are copied in, and the graph is replayed.

    Args:
        function: Its inputs are tensors on a GPU. Its weights are not copied.
        inputs: Inputs with the shapes to capture.

    Returns:
        A function whose results are overwritten by its next call.
    """
    kept = tuple(tensor.clone() for tensor in inputs)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(RUNS_BEFORE_CAPTURE):
            function(*kept)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = function(*kept)

    def replay(*given: torch.Tensor) -> Any:  # noqa: ANN401  (any pytree)
        for place, tensor in zip(kept, given, strict=True):
            place.copy_(tensor)
        graph.replay()
        return outputs

    return replay
