"""Compile a warm-up function, as every process must before it compiles a case."""

from __future__ import annotations

import os
import shlex
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable


# Inductor's check of a set of vector instructions: whether what was compiled for it can be loaded.
_LOADS: Final = """
from ctypes import CDLL
try:
    CDLL({torch!r})
    CDLL("__lib_path__")
except OSError:
    import torch
    CDLL("__lib_path__")
"""


def use_compiler(
    *,
    device: str = "cpu",
    compiler: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
) -> None:
    """Compile a throwaway, so that one-time costs do not count as compile time.

    These are: importing Inductor, finding the compiler and the vector instructions, and
    precompiling headers.
    """
    import torch  # noqa: PLC0415

    check_instructions_without_torch()
    compiled = compiler(throwaway) if compiler else torch.compile(throwaway, dynamic=False)
    compiled(torch.ones(64, device=device))


def throwaway(x: Any) -> Any:  # noqa: ANN401  (torch is not imported at the top of this module)
    """Compute something trivial, to be compiled once."""
    return x * 2 + 1


def check_instructions_without_torch() -> None:
    """Let Inductor check vector instructions as it does since 2.13, without an import of torch.

    Before, each process that compiles starts one that imports torch, 2 s, for each set of
    instructions that the processor has.
    """
    import torch  # noqa: PLC0415

    with suppress(Exception):  # it only saves time
        try:
            from torch._inductor.cpu_vec_isa import VecISA  # noqa: PLC0415  (since 2.5)
        except ImportError:
            from torch._inductor.codecache import VecISA  # noqa: PLC0415
        if VecISA._avx_py_load.startswith("\nimport torch\n"):  # noqa: SLF001
            library = Path(torch.__file__).with_name("lib") / "libtorch.so"
            VecISA._avx_py_load = _LOADS.format(torch=str(library))  # noqa: SLF001


def find_instructions() -> None:
    """Let Inductor find the vector instructions, with what its present cache knows of them.

    In an empty cache it compiles and loads a library for each set of instructions that the
    processor has: 9 CPU seconds, beside 12 for the kernels of a ResNet-18.

    Raises:
        Exception: If Inductor lacks what is used here.
    """
    from torch._inductor import codecache  # noqa: PLC0415

    check_instructions_without_torch()
    codecache.pick_vec_isa()


def precompile_kernel_header(shared: Path) -> None:
    """Precompile the header of C++ kernels, which Inductor does itself since 2.8.

    A kernel then takes g++ half of the time, and its machine code is the same: g++ does not use
    what was precompiled with other options or by another version.

    Args:
        shared: Folder that keeps what is precompiled for later processes.

    Raises:
        OSError: If the header cannot be kept; also other types if Inductor lacks what is used here.
        subprocess.CalledProcessError: If the compiler refuses.
    """
    from torch._inductor import codecache, cpp_builder  # noqa: PLC0415

    if hasattr(codecache, "_precompile_header"):
        return
    asked = codecache.CppPythonBindingsCodeCache.cpp_compile_command_flags
    asked = {"vec_isa": codecache.pick_vec_isa(), **asked}
    if hasattr(cpp_builder, "CppTorchDeviceOptions"):  # since 2.6
        options = cpp_builder.CppTorchDeviceOptions(device_type="cpu", **asked)
    else:
        options = cpp_builder.CppTorchCudaOptions(cuda=False, **asked)
    builder = cpp_builder.CppBuilder(name="o", sources="i", BuildOption=options)
    compiler, *words = shlex.split(builder.get_command_line())
    linked = ("-l", "-L", "-shared")
    flags = [word for word in words[1 : words.index("-o")] if not word.startswith(linked)]
    header = Path(codecache.cpp_prefix_path())
    kept = shared / f"{header.name}.gch"
    new = shared / f"{header.name}.{os.getpid()}"
    if not kept.exists():
        command = [compiler, "-x", "c++-header", str(header), *flags, "-o", str(new)]
        subprocess.run(command, capture_output=True, check=True)
        new.replace(kept)
    header.with_name(kept.name).symlink_to(kept)
