"""Our shortcuts of a first compile: older releases lack a precompiled header and a quick check."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

torch = pytest.importorskip("torch", reason="torch is only in the cells")

from torch._inductor import codecache  # noqa: E402  (torch first)

if TYPE_CHECKING:
    from pathlib import Path

# What each process of a trial does: it precompiles, or takes what another has precompiled.
PROGRAM = """
import sys
from pathlib import Path
import torch
from ivhl.measure.first_compile import precompile_kernel_header
import torch._inductor.compile_fx
precompile_kernel_header(Path(sys.argv[1]))
x = torch.linspace(0, 1, 64)
print(torch.allclose(torch.compile(lambda x: x.sin() * 2 + 1)(x), x.sin() * 2 + 1))
"""


@pytest.mark.skipif(
    hasattr(codecache, "_precompile_header"), reason="this release precompiles it itself"
)
@pytest.mark.full
def test_kernels_are_compiled_with_the_precompiled_header(tmp_path: Path) -> None:
    compiler = tmp_path / "g++"
    checks = "-Winvalid-pch -Werror=invalid-pch"
    compiler.write_text(
        f'#!/bin/sh\n[ "$1" = -x ] && : >{tmp_path}/made\nexec g++ {checks} "$@"\n'
    )
    compiler.chmod(0o755)
    seen = []
    for process in ("first", "second"):
        environment = os.environ | {
            "CXX": str(compiler),
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / process),
        }
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        seen.append((done.stdout.split()[-1], (tmp_path / "made").exists()))
        (tmp_path / "made").unlink(missing_ok=True)
    assert seen == [("True", True), ("True", False)]
    assert [path.name for path in tmp_path.glob("*.gch")] == [
        path.name for path in (tmp_path / "second").glob("*/*.gch")
    ]


# A check that imports torch finds a module that cannot be imported, and finds no instructions.
CHECKS = """
import os
import sys
import torch
import torch._inductor.config
from ivhl.measure.first_compile import check_instructions_without_torch
try:
    from torch._inductor import cpu_vec_isa as module
except ImportError:
    from torch._inductor import codecache as module
if "without" in sys.argv:
    check_instructions_without_torch()
if len(sys.argv) > 2:
    sys.path.insert(0, sys.argv[2])
    os.environ["PYTHONPATH"] = sys.argv[2]
print([str(isa) for isa in module.valid_vec_isa_list()])
"""


@pytest.mark.full
def test_vector_instructions_are_checked_without_an_import_of_torch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit(1)\n")
    seen = {}
    for name, words in {
        "usual": ["usual"],
        "hidden": ["usual", str(tmp_path)],
        "ours": ["without", str(tmp_path)],
    }.items():
        done = subprocess.run(
            [sys.executable, "-c", CHECKS, *words],
            env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")},
            capture_output=True,
            text=True,
            check=True,
        )
        seen[name] = done.stdout.split("\n")[-2]
    if seen["hidden"] == seen["usual"]:
        pytest.skip("this release imports no torch, or this processor has no such instructions")
    assert seen["ours"] == seen["usual"]
