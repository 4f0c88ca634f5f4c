"""Read and write files of trained weights; see ``docs/model-card.md`` for their accuracy.

``nox -s train-mlff`` writes ``painn_gfn2.pt``. A file holds plain tensors, strings and numbers, so
that ``torch.load(..., weights_only=True)`` reads it on every release.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from ivhl.mlff.parameters import REFERENCE_ENERGIES, cast_parameters, check_parameters

if TYPE_CHECKING:
    from ivhl.mlff.painn import Parameters

SHIPPED: Final = Path(__file__).parent / "painn_gfn2.pt"
FORMAT: Final = "ivhl.weights/1"
MODEL: Final = "painn"

_FIELDS: Final = {"format", "model", "name", "labels", "seed", "parameters"}
_NEXT: Final = "load_painn() without a path reads the weights of this package"


def load_painn(
    path: Path | str | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Parameters:
    """Return trained weights of ``ivhl.mlff.painn``.

    Args:
        path: File written by ``nox -s train-mlff``; default: the file of this package, trained on
            GFN2-xTB for molecules of H, C, N and O.
        dtype: Dtype of the weights, real floating point. In the file they are float32.
        device: Device of the weights.

    Returns:
        Weights in the form of ``painn.make_parameters``, and ``"reference_energies"``, float64,
        shape ``[101]``, in eV: the energy of each element, NaN for one without training data.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is not one of weights, or ``dtype`` is not real floating point.
    """
    if not dtype.is_floating_point:
        raise ValueError(f"dtype must be real floating point, got {dtype}")
    file = SHIPPED if path is None else Path(path)
    content = _read(file)
    try:
        check_parameters(content["parameters"])
    except ValueError as error:
        raise ValueError(f"{file}: {error}; {_NEXT}") from error
    if REFERENCE_ENERGIES not in content["parameters"]:
        raise ValueError(f"{file}: {REFERENCE_ENERGIES} must be there, got none; {_NEXT}")
    return cast_parameters(content["parameters"], dtype=dtype, device=device)


def write_painn(path: Path, parameters: Parameters, *, name: str, labels: str, seed: int) -> None:
    """Write weights to a file for ``load_painn``.

    Args:
        path: File to write.
        parameters: Weights, with ``"reference_energies"``.
        name: Name of the model.
        labels: Method and program that computed the training labels.
        seed: Seed of the training.

    Raises:
        ValueError: If these are not weights of ``ivhl.mlff.painn``.
    """
    check_parameters(parameters)
    content = {
        "format": FORMAT,
        "model": MODEL,
        "name": name,
        "labels": labels,
        "seed": seed,
        "parameters": parameters,
    }
    torch.save(content, path)


def _read(file: Path) -> dict[str, Any]:
    """Return the content of a file, after checking its fields and format."""
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    # What torch raises for a foreign file depends on its bytes and on the release.
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        first_line = str(error).split("\n", maxsplit=1)[0]
        raise ValueError(
            f"{file} must be a file of tensors that torch can read, got {first_line!r}; {_NEXT}"
        ) from error
    if not isinstance(content, dict) or set(content) != _FIELDS:
        seen = sorted(map(str, content)) if isinstance(content, dict) else type(content).__name__
        raise ValueError(f"{file} must hold the fields {sorted(_FIELDS)}, got {seen}; {_NEXT}")
    for field, needed in (("format", FORMAT), ("model", MODEL)):
        if content[field] != needed:
            raise ValueError(
                f"{file}: {field} must be {needed!r}, got {content[field]!r}; {_NEXT}"
            )
    return content
