"""Compile the dense form ahead of time with AOTInductor: a call goes straight into compiled code.

Dynamo is not involved: it checks no guards at each call and refuses no Python, so this works with
PyTorch 2.5.1 on Python 3.13. Weights are an input, joined into one tensor, so one library serves
all weights. It is stored on disk, and later processes only load it.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from ivhl.compile import CACHE_VARIABLE, choose_cache_folder, environment_key, when_cleared
from ivhl.device import compute_capability
from ivhl.mlff import batch, painn, parameters
from ivhl.mlff.batch import batch_energies_forces
from ivhl.mlff.parameters import join_parameters, separate_parameters

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]

_compiling = threading.Lock()


def compile_ahead(
    n_atoms: int, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> Run:
    """Return a function for energy and forces of one molecule, compiled ahead of time.

    The first call for a length compiles, which takes about a minute. The library is stored in
    Inductor's cache folder, where later calls and processes with the same PyTorch, Python,
    processor and number of threads find it.

    Args:
        n_atoms: Length to compile for; pad shorter molecules with atomic number 0.
        dtype: Dtype of weights and positions, real floating point.
        device: Device of all inputs.

    Returns:
        A function of weights as ``parameters.join_parameters`` joins them, atomic numbers, shape
        ``[1, n_atoms]``, int64, and positions in Å, shape ``[1, n_atoms, 3]``. Like
        ``batch.batch_energies_forces`` it returns an energy in eV, shape ``[1]``, and forces in
        eV/Å, shape ``[1, n_atoms, 3]``, but without a gradient. It raises a ``ValueError`` for any
        other shape, dtype or device.

    Raises:
        ValueError: If ``n_atoms`` is less than 1 or ``dtype`` is not real floating point.
        NotImplementedError: If this PyTorch cannot load an AOTInductor library from Python.
        Exception: Any exception of the compiler.
    """
    if n_atoms < 1:
        raise ValueError(f"n_atoms must be at least 1, got {n_atoms}")
    if not dtype.is_floating_point:
        raise ValueError(f"dtype must be real floating point, got {dtype}")
    return _compile(n_atoms, dtype, torch.device(device), torch.get_num_threads())


@functools.cache
def _compile(n_atoms: int, dtype: torch.dtype, device: torch.device, n_threads: int) -> Run:
    with (
        # Not around the cache: a cached function must not wait while another length compiles
        _compiling,
        # Context managers around the first call must not affect the library that later calls load
        torch.inference_mode(mode=False),
        torch.autocast(device.type, enabled=False),
        torch.device("cpu"),
        torch.no_grad(),
    ):
        choose_cache_folder()
        folder = Path(os.environ[CACHE_VARIABLE], "ahead")
        key = _key(n_atoms, dtype, device, n_threads)
        inputs = _make_inputs(n_atoms, dtype, device)
        run = _load(_find(folder, key) or _export(folder, key, inputs), device)
    expected = [_describe(x) for x in inputs]

    def call(
        weights: torch.Tensor, numbers: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        given = (weights, numbers, positions)
        # Compiled code does not check its inputs: it would read beyond them
        if [_describe(x) for x in given] != expected:
            _refuse(given, expected)
        energies, forces = run([x.contiguous() for x in given])
        return energies, forces

    return call


when_cleared(_compile.cache_clear)


def _describe(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.device


def _refuse(given: tuple[torch.Tensor, ...], expected: list[tuple[Any, ...]]) -> NoReturn:
    names = ("weights", "atomic_numbers", "positions")
    which = [_describe(x) != right for x, right in zip(given, expected, strict=True)].index(True)
    x, (shape, dtype, device) = given[which], expected[which]
    raise ValueError(
        f"{names[which]} must have shape {list(shape)} and be {dtype} on {device}, for which this "
        f"was compiled; got {list(x.shape)} of {x.dtype} on {x.device}"
    )


def _key(n_atoms: int, dtype: torch.dtype, device: torch.device, n_threads: int) -> str:
    """Return a file name that identifies everything the compiled code depends on."""
    modules = (sys.modules[__name__], painn, batch, parameters)
    sources = [inspect.getsource(module) for module in modules]
    capability = compute_capability(device)
    parts = (environment_key(), n_threads, n_atoms, dtype, device, capability, sources)
    return f"painn-{n_atoms}-{_digest(repr(parts).encode())}"


def _find(folder: Path, key: str) -> Path | None:
    """Return the complete file of this name: loading a truncated library kills the process."""
    for path in sorted(folder.glob(f"{key}-*")):
        if path.stem == f"{key}-{_digest(path.read_bytes())}":
            return path
    return None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _make_inputs(
    n_atoms: int, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    weights = join_parameters(painn.make_parameters(generator))
    numbers = torch.ones(1, n_atoms, dtype=torch.int64)
    positions = torch.randn(1, n_atoms, 3, generator=generator)
    return weights.to(device, dtype), numbers.to(device), positions.to(device, dtype)


def _export(folder: Path, key: str, inputs: tuple[torch.Tensor, ...]) -> Path:
    """Compile, and return the file; its name is the key and the digest of its content."""
    import torch._inductor as inductor  # noqa: PLC0415  (seconds, and only to compile)
    from torch.fx.experimental.proxy_tensor import make_fx  # noqa: PLC0415

    if not (_has_packages() or hasattr(torch._export, "aot_load")):  # noqa: SLF001
        raise NotImplementedError(
            f"PyTorch {torch.__version__} cannot load from Python what AOTInductor makes"
        )

    # torch.export cannot trace torch.autograd.grad, so make_fx records the operations first
    def evaluate(*given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return batch_energies_forces(separate_parameters(given[0]), *given[1:])

    program = torch.export.export(make_fx(evaluate)(*inputs).eval(), inputs, strict=False)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as within:
        if _has_packages():
            made = Path(within, "model.pt2")
            inductor.aoti_compile_and_package(program, package_path=str(made))
        else:
            made = Path(inductor.aot_compile(program.module(), inputs))
        path = folder / f"{key}-{_digest(made.read_bytes())}{made.suffix}"
        shutil.move(made, path)
    return path


def _load(path: Path, device: torch.device) -> Callable[[list[torch.Tensor]], Any]:
    if not _has_packages():
        loaded = torch._export.aot_load(str(path), device.type)  # noqa: SLF001
        return lambda inputs: loaded(*inputs)
    import torch._inductor as inductor  # noqa: PLC0415  (seconds)

    # Calling the package would parse the nesting of its inputs from JSON each time; ours are flat
    return inductor.aoti_load_package(str(path)).loader.run  # type: ignore[no-any-return]


def _has_packages() -> bool:
    import torch._inductor as inductor  # noqa: PLC0415  (seconds)

    return hasattr(inductor, "aoti_load_package")
