"""Check, cast and join weights, and add the reference energies of elements.

The network computes the energy of bonds and repulsion, a few eV. The much larger energy of the
separate atoms (-430 eV for benzene in GFN2-xTB) is a number per element, stored beside the weights
in float64 and added outside of the network: added in float32, it would cost the last digits of the
energy that moves the atoms.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.nn.functional import pad

from ivhl.mlff.painn import MAX_ATOMIC_NUMBER, N_FEATURES, N_INTERACTIONS, N_RADIAL, Parameters

if TYPE_CHECKING:
    from collections.abc import Iterator

REFERENCE_ENERGIES: Final = "reference_energies"

_ALIGNED: Final = 16  # numbers; 64 bytes in float32, one cache line

_F: Final = N_FEATURES
_LAYER: Final[dict[str, tuple[int, ...]]] = {
    "message_w1": (_F, _F),
    "message_b1": (_F,),
    "message_w2": (_F, 3 * _F),
    "message_b2": (3 * _F,),
    "filter_w": (N_RADIAL, 3 * _F),
    "filter_b": (3 * _F,),
    "mix_u": (_F, _F),
    "mix_v": (_F, _F),
    "update_w1": (2 * _F, _F),
    "update_b1": (_F,),
    "update_w2": (_F, 3 * _F),
    "update_b2": (3 * _F,),
}
_OUTSIDE: Final[dict[str, tuple[int, ...]]] = {
    "embedding": (MAX_ATOMIC_NUMBER + 1, _F),
    "readout_w1": (_F, _F // 2),
    "readout_b1": (_F // 2,),
    "readout_w2": (_F // 2, 1),
    "readout_b2": (1,),
}


def check_parameters(parameters: object) -> None:
    """Check that weights belong to this model.

    Args:
        parameters: Any object, e.g. from a file. Valid are nested dictionaries and lists in the form
            of ``painn.make_parameters``, with ``"reference_energies"`` or without.

    Raises:
        ValueError: If a field is missing, unknown, not a tensor, or has a wrong shape, a wrong
            dtype or a number that is not finite. The message names the field, e.g.
            ``layers[2].mix_u``.
    """
    if not isinstance(parameters, dict):
        kind = type(parameters).__name__
        raise ValueError(f"weights must be a dict of tensors, got {kind}")  # noqa: TRY004
    _check_names("weights", parameters, {*_OUTSIDE, "layers"}, optional={REFERENCE_ENERGIES})
    layers = parameters["layers"]
    if not isinstance(layers, list) or len(layers) != N_INTERACTIONS:
        seen = f"{len(layers)}" if isinstance(layers, list) else type(layers).__name__
        raise ValueError(f"layers must be a list of {N_INTERACTIONS} dicts, got {seen}")
    for name, shape in _OUTSIDE.items():
        _check_weight(name, parameters[name], shape)
    for number, layer in enumerate(layers):
        if not isinstance(layer, dict):
            kind = type(layer).__name__
            raise ValueError(f"layers[{number}] must be a dict, got {kind}")  # noqa: TRY004
        _check_names(f"layers[{number}]", layer, set(_LAYER))
        for name, shape in _LAYER.items():
            _check_weight(f"layers[{number}].{name}", layer[name], shape)
    dtypes = {tensor.dtype for name, tensor in _walk(parameters) if name != REFERENCE_ENERGIES}
    if len(dtypes) > 1:
        seen = " and ".join(sorted(map(str, dtypes)))
        raise ValueError(f"weights must be of one dtype, got {seen}")
    if REFERENCE_ENERGIES in parameters:
        _check_reference_energies(parameters[REFERENCE_ENERGIES])


def cast_parameters(
    parameters: Parameters, *, dtype: torch.dtype, device: torch.device | str
) -> Parameters:
    """Return a copy of weights in another precision or on another device, without gradient.

    Reference energies stay float64, like the energies of molecules.

    Args:
        parameters: Weights, in the form of ``painn.make_parameters``.
        dtype: Real floating point.
        device: Device of the copy.
    """

    def cast(node: Any, name: str) -> Any:  # noqa: ANN401  (a nest of tensors)
        if isinstance(node, dict):
            return {key: cast(child, key) for key, child in node.items()}
        if isinstance(node, list):
            return [cast(child, name) for child in node]
        kept = torch.float64 if name == REFERENCE_ENERGIES else dtype
        return node.detach().to(device=device, dtype=kept, copy=True)

    cast_all: Parameters = cast(parameters, "")
    return cast_all


def join_parameters(parameters: Parameters) -> torch.Tensor:
    """Return all weights in one tensor, so that compiled code has one input instead of forty.

    Args:
        parameters: Weights, in the form of ``painn.make_parameters``. Reference energies are left
            out.

    Returns:
        One axis, in the dtype of the weights; each weight begins at a multiple of 64 bytes or more.
    """
    weights = [parameters[name] for name in _OUTSIDE]
    weights += [layer[name] for layer in parameters["layers"] for name in _LAYER]
    return torch.cat(
        [pad(weight.reshape(-1), (0, -weight.numel() % _ALIGNED)) for weight in weights]
    )


def separate_parameters(joined: torch.Tensor) -> Parameters:
    """Return the weights from ``join_parameters`` as views of the joined tensor.

    Args:
        joined: From ``join_parameters``.
    """
    separate: Parameters = {"layers": [{} for _ in range(N_INTERACTIONS)]}
    places = [(separate, name, shape) for name, shape in _OUTSIDE.items()]
    for layer in separate["layers"]:
        places += [(layer, name, shape) for name, shape in _LAYER.items()]
    start = 0
    for place, name, shape in places:
        size = math.prod(shape)
        place[name] = joined[start : start + size].view(shape)
        start += size + -size % _ALIGNED
    return separate


def add_reference_energies(
    parameters: Parameters, atomic_numbers: torch.Tensor, energies: torch.Tensor
) -> torch.Tensor:
    """Return total energies: those of the network plus those of the separate atoms.

    Args:
        parameters: Weights; without ``"reference_energies"`` nothing is added.
        atomic_numbers: Shape ``[..., n_atoms]``, int64, each in ``[0, 100]``; 0 is padding.
        energies: Energies from the network, shape ``[...]``, in eV.

    Returns:
        Shape ``[...]``, in eV, float64. NaN where an element has no reference energy.
    """
    whole = energies.to(torch.float64)
    if REFERENCE_ENERGIES not in parameters:
        return whole
    per_element: torch.Tensor = parameters[REFERENCE_ENERGIES]
    return whole + per_element[atomic_numbers].sum(dim=-1)


def list_known_elements(parameters: Parameters) -> list[int]:
    """Return the atomic numbers that the weights were trained for, ascending.

    Those with a reference energy. Weights without reference energies are random: all from 1 to 100.

    Args:
        parameters: Weights, in the form of ``painn.make_parameters``.
    """
    everything = range(1, MAX_ATOMIC_NUMBER + 1)
    if REFERENCE_ENERGIES not in parameters:
        return list(everything)
    known = parameters[REFERENCE_ENERGIES].isfinite().tolist()
    return [number for number in everything if known[number]]


def _check_names(
    where: str, found: dict[Any, Any], needed: set[str], *, optional: set[str] | None = None
) -> None:
    missing = needed - found.keys()
    unknown = found.keys() - needed - (optional or set())
    if missing or unknown:
        parts = [
            f"{word} {', '.join(sorted(map(str, names)))}"
            for word, names in (("missing", missing), ("unknown", unknown))
            if names
        ]
        raise ValueError(
            f"{where} must have the fields of PaiNN, {', '.join(sorted(needed))}; "
            f"{'; '.join(parts)}: are these the weights of another model?"
        )


def _check_weight(name: str, tensor: object, shape: tuple[int, ...]) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{name} must be a tensor, got {type(tensor).__name__}")  # noqa: TRY004
    if tuple(tensor.shape) != shape:
        raise ValueError(
            f"{name} must have shape {list(shape)}, got {list(tensor.shape)}: "
            "are these the weights of another model?"
        )
    if not tensor.dtype.is_floating_point:
        raise ValueError(f"{name} must be real floating point, got {tensor.dtype}")
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name} must be finite, got NaN or infinity")


def _check_reference_energies(tensor: object) -> None:
    if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.float64:
        seen = tensor.dtype if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise ValueError(f"{REFERENCE_ENERGIES} must be a float64 tensor, got {seen}")
    if tuple(tensor.shape) != (MAX_ATOMIC_NUMBER + 1,):
        raise ValueError(
            f"{REFERENCE_ENERGIES} must have shape [{MAX_ATOMIC_NUMBER + 1}], one per element, "
            f"got {list(tensor.shape)}"
        )
    if float(tensor[0]) != 0.0:
        raise ValueError(
            f"{REFERENCE_ENERGIES}[0] must be 0, as it is no atom, got {float(tensor[0])}"
        )
    if bool(torch.isinf(tensor).any()):
        raise ValueError(
            f"{REFERENCE_ENERGIES} must be finite, or NaN for an unknown element, got infinity"
        )


def _walk(node: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:  # noqa: ANN401
    if isinstance(node, dict):
        for key, child in node.items():
            yield from _walk(child, key)
    elif isinstance(node, list):
        for child in node:
            yield from _walk(child, name)
    else:
        yield name, node
