"""Compare what ivhl says of packages in cells with pip: ``python -m studies.overlays [PACKAGE...]``.

pip resolves the same requirements with its own resolver, with wheels alone and for the same Python.
Of torch it sees a wheel without contents, with the requirements of the release but for its CUDA
libraries, so that it does not download 3 GB. pip goes back to old releases that state no limit; what
it picks then is shown beside the limit of the newest that ivhl names.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name

from ivhl.errors import LockError
from ivhl.matrix.interpreter import find_interpreter
from ivhl.matrix.locks import lock_state
from ivhl.matrix.spec import CellSpec
from ivhl.script.cells import SHIPPED
from ivhl.script.overlay import UnavailableError, overlay_lock
from tests.builders.registry import make_wheel

PAIRS: Final = (
    ("timm", "3.12", "2.15.0"),
    ("facenet-pytorch", "3.12", "2.15.0"),
    ("torchvision", "3.12", "2.5.1"),
    ("torchaudio", "3.12", "2.15.0"),
    ("torchaudio", "3.12", "2.6.0"),
    ("bitsandbytes", "3.12", "2.2.2"),
    ("keras", "3.12", "2.15.0"),
    ("openai-whisper", "3.12", "2.15.0"),
    ("antlr4-python3-runtime==4.9.3", "3.12", "2.6.0"),
    ("omegaconf==2.3.0", "3.13", "2.15.0"),
    ("torchtext", "3.13", "2.15.0"),
    ("xformers", "3.12", "2.5.1"),
    ("xformers", "3.12", "2.14.1"),
)


def main() -> None:
    """Print a table: package, cell, what ivhl says, what pip says."""
    print("| package | cell | ivhl | pip |\n|---|---|---|---|")
    named = sys.argv[1:]
    for requirement, python, torch in PAIRS:
        if named and requirement not in named:
            continue
        cell = CellSpec(python, torch)
        print(f"| {requirement} | {cell.id} | {of_ivhl(cell, requirement)} |", end=" ", flush=True)
        print(f"{of_pip(cell, requirement)} |", flush=True)


def of_ivhl(cell: CellSpec, requirement: str) -> str:
    """Return the version that ivhl adds to a cell, or why it adds none."""
    python = find_interpreter(Path.home(), cell.python).path
    name = requirement.partition("==")[0]
    try:
        lock = overlay_lock(python, lock_state(SHIPPED, cell), [requirement])
    except (UnavailableError, LockError) as error:
        return str(error)
    found = [line.partition(" ")[0] for line in lock.splitlines()]
    return next((line for line in found if line.startswith(f"{name}==")), "as in the cell")


def of_pip(cell: CellSpec, requirement: str) -> str:
    """Return the version that pip would install beside a release of torch, or why it would not."""
    python = find_interpreter(Path.home(), cell.python).path
    pins = lock_state(SHIPPED, cell).pins
    requires = [
        f"{pin.name}=={pin.version}" if pin.name == "triton" else pin.name
        for pin in pins
        if "torch" in pin.via and not pin.name.startswith(("nvidia-", "cuda-"))
    ]
    with tempfile.TemporaryDirectory() as folder:
        wheels, report = Path(folder) / "wheels", Path(folder) / "report.json"
        make_wheel(wheels, "torch", f"{cell.torch}+stub", requires=requires)
        command = [
            *(str(python), "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"),
            *("--only-binary", ":all:", "--find-links", str(wheels), "--report", str(report)),
            *(f"torch=={cell.torch}+stub", requirement),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return " ".join(x for x in done.stderr.splitlines() if x.startswith("ERROR"))[:300]
        installed = (one["metadata"] for one in json.loads(report.read_text())["install"])
        found = {canonicalize_name(one["name"]): one["version"] for one in installed}
        name = requirement.partition("==")[0]
        return f"{name}=={found[canonicalize_name(name)]}"


if __name__ == "__main__":
    main()
