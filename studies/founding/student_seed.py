"""The original student, the network whose benchmark this project began with. Do not use it.

It is kept, with all weights, so that the benchmark can be repeated (``nox -s founding``). For
energies and forces use ``ivhl.mlff``. Atoms have scalars ``s`` (shape ``[n_atoms, F]``) and
vectors ``v`` (``[n_atoms, 3, F]``), as in PaiNN, but the network is another one, with these defects:

* **Not rotation invariant.** The update multiplies the three Cartesian components by a free 3x3
  matrix, where PaiNN mixes the F channels. With the original weights, the energies of 50 random
  rotations span 0.10 eV (H2), 0.17 eV (H2O), 0.030 eV (CH4) and 0.013 eV (C6H6); forces deviate from
  the rotated ones by up to 0.29, 0.58, 5.1 and 0.071 eV/Å. Only a multiple of the identity commutes
  with rotations; with the mean of the diagonal, the energy changes by rounding only, 1e-14 eV.
* **Norm of a zero vector.** By symmetry, the vectors at the carbon of CH4 vanish, and the norm has
  no derivative there: rounding decides the direction of the force. Even with a multiple of the
  identity, forces on CH4 deviate from the rotated ones by up to 7.4 eV/Å, and the force on carbon,
  which must be zero, reaches 8.2 eV/Å. With atoms displaced by 0.05 Å, the deviation is 1e-14.
* **Energy jumps at the cutoff.** The cutoff multiplies the input of the filter network, not its
  output, so its biases send a message at any distance up to 5 Å. With the original weights, the
  energy of an approaching pair drops at 5 Å by 0.25 (H-H), 0.31 (O-O), 0.50 (C-O) and 0.80 eV (C-C).

Tests show each of them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.nn.functional import silu

if TYPE_CHECKING:
    from collections.abc import Mapping

StudentParameters = dict[str, Any]

CUTOFF: Final = 5.0  # Å
N_FEATURES: Final = 128
N_INTERACTIONS: Final = 3
N_RADIAL: Final = 20
MAX_ATOMIC_NUMBER: Final = 100
# exp(-(d - centre)² / width²), no factor of two: 16 Å⁻²
RADIAL_WIDTH: Final = CUTOFF / N_RADIAL
# Added to a distance before it divides.
DISTANCE_EPS: Final = 1e-8

# Our names to the original's, for a layer and for the readout; ``*.weight`` is transposed.
LAYER_NAMES: Final = {
    "filter_w1": "message.rbf_to_scalar.0.weight",
    "filter_b1": "message.rbf_to_scalar.0.bias",
    "filter_w2": "message.rbf_to_scalar.2.weight",
    "filter_b2": "message.rbf_to_scalar.2.bias",
    "mixing": "update.mixing_matrix",
    "update_w1": "update.update_mlp.0.weight",
    "update_b1": "update.update_mlp.0.bias",
    "update_w2": "update.update_mlp.2.weight",
    "update_b2": "update.update_mlp.2.bias",
}
READOUT_NAMES: Final = {
    "readout_w1": "energy_head.0.weight",
    "readout_b1": "energy_head.0.bias",
    "readout_w2": "energy_head.2.weight",
    "readout_b2": "energy_head.2.bias",
    "readout_w3": "energy_head.4.weight",
    "readout_b3": "energy_head.4.bias",
}


def make_parameters(generator: torch.Generator) -> StudentParameters:
    """Draw random, untrained weights; energies and forces have no meaning.

    Args:
        generator: Source of all random numbers.

    Returns:
        Nested dictionaries and lists of float64 tensors, 427,292 numbers. Weights have shape
        ``[n_in, n_out]`` and variance ``1 / n_in``, the mixing matrix ``[3, 3]`` as well.
    """
    f = N_FEATURES

    def weight(n_in: int, n_out: int) -> torch.Tensor:
        w = torch.randn(n_in, n_out, dtype=torch.float64, generator=generator)
        return w / math.sqrt(n_in)

    def bias(n_out: int) -> torch.Tensor:
        return 0.1 * torch.randn(n_out, dtype=torch.float64, generator=generator)

    def layer() -> StudentParameters:
        return {
            "filter_w1": weight(N_RADIAL, f),
            "filter_b1": bias(f),
            "filter_w2": weight(f, 3 * f),
            "filter_b2": bias(3 * f),
            "mixing": weight(3, 3),
            "update_w1": weight(2 * f, f),
            "update_b1": bias(f),
            "update_w2": weight(f, 3 * f),
            "update_b2": bias(3 * f),
        }

    return {
        "embedding": torch.randn(
            MAX_ATOMIC_NUMBER + 1, f, dtype=torch.float64, generator=generator
        ),
        "layers": [layer() for _ in range(N_INTERACTIONS)],
        "readout_w1": weight(f, f // 2),
        "readout_b1": bias(f // 2),
        "readout_w2": weight(f // 2, f // 4),
        "readout_b2": bias(f // 4),
        "readout_w3": weight(f // 4, 1),
        "readout_b3": bias(1),
    }


def load_original(tensors: Mapping[str, torch.Tensor]) -> StudentParameters:
    """Return the original's trained weights in the form of ``make_parameters``.

    Args:
        tensors: The original's names to its tensors, weights as ``[n_out, n_in]``: the state of its
            module, or the initialisers of its ONNX file. The latter lacks the mixing matrix of the
            last interaction, whose vectors are not used; the identity replaces it.

    Returns:
        Nested dictionaries and lists of float64 tensors.

    Raises:
        ValueError: If a tensor is missing, unknown or has the wrong shape, or if the radial
            functions differ.
    """
    left = dict(tensors)
    left.setdefault(f"interactions.{N_INTERACTIONS - 1}.update.mixing_matrix", torch.eye(3))
    shapes = make_parameters(torch.Generator())

    def take(name: str, like: torch.Tensor) -> torch.Tensor:
        if name not in left:
            raise ValueError(f"tensors must contain {name!r}, which is missing")
        tensor = left.pop(name).to(torch.float64)
        if name.endswith(".weight") and name != "embedding.weight":
            tensor = tensor.T
        if tensor.shape != like.shape:
            raise ValueError(
                f"{name!r} must become {list(like.shape)} here, got {list(tensor.shape)}"
            )
        return tensor.clone()

    parameters: StudentParameters = {"embedding": take("embedding.weight", shapes["embedding"])}
    parameters["layers"] = [
        {
            ours: take(f"interactions.{n}.{theirs}", layer[ours])
            for ours, theirs in LAYER_NAMES.items()
        }
        for n, layer in enumerate(shapes["layers"])
    ]
    parameters |= {ours: take(theirs, shapes[ours]) for ours, theirs in READOUT_NAMES.items()}
    for name, ours in {
        "rbf.centers": torch.linspace(0.0, CUTOFF, N_RADIAL, dtype=torch.float64),
        "rbf.widths": torch.full((N_RADIAL,), RADIAL_WIDTH, dtype=torch.float64),
    }.items():
        # float32 in the file
        if float((take(name, ours) - ours).abs().max()) > 1e-6:  # noqa: PLR2004
            raise ValueError(f"{name!r} must be that of {N_RADIAL} functions up to {CUTOFF} Å")
    if left:
        raise ValueError(f"tensors must contain nothing else, got {', '.join(sorted(left))}")
    return parameters


def energy(
    parameters: StudentParameters, atomic_numbers: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Return the energy of a molecule over the list of its edges, as the original computes it.

    ``nonzero`` makes the list, whose length depends on the positions; ``torch.compile`` breaks the
    graph there.

    Args:
        parameters: Weights from ``make_parameters``, in the dtype of ``positions``.
        atomic_numbers: Shape ``[n_atoms]``, int64, each in ``[1, 100]``.
        positions: Shape ``[n_atoms, 3]``, in Å.

    Returns:
        Energy in eV, a tensor without axes.

    Raises:
        ValueError: If a shape or a dtype is wrong, or if there is no atom.

    Source:
        The graph of the original's ONNX file, ``models/original_model.onnx`` of
        atfrank/MLFF-Distiller. There each atom keeps only one of its messages, because
        ``ScatterElements`` of opset 14 cannot add; here they are added. The update resembles that
        of Schütt, Unke and Gastegger, PaiNN, arXiv:2102.03150, eqs. (9) and (10).
    """
    _check(atomic_numbers, positions)
    between = positions.detach()[:, None, :] - positions.detach()[None, :, :]
    apart = torch.linalg.vector_norm(between, dim=-1)
    itself = torch.eye(positions.shape[0], dtype=torch.bool, device=positions.device)
    sender, receiver = ((apart <= CUTOFF) & ~itself).nonzero().unbind(dim=1)
    difference = positions[sender] - positions[receiver]
    d = torch.linalg.vector_norm(difference, dim=1)
    unit = difference / (d[:, None] + DISTANCE_EPS)
    radial = _radial(d)
    s = parameters["embedding"][atomic_numbers]
    v = s.new_zeros(s.shape[0], 3, s.shape[1])
    for p in parameters["layers"]:
        ws, wv, wr = _filters(radial, p)
        to_s = s[sender] * ws
        to_v = v[sender] * wv[:, None, :] + unit[:, :, None] * wr[:, None, :]
        s = s + torch.zeros_like(s).index_add(0, receiver, to_s)
        v = v + torch.zeros_like(v).index_add(0, receiver, to_v)
        s, v = _updated(s, v, p)
    return _perceptron(s, parameters, "readout", 3).sum()


def energy_all_pairs(
    parameters: StudentParameters, atomic_numbers: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Return ``energy`` over all pairs as a square; pairs beyond the cutoff are masked.

    Dynamo captures it as one graph. It sums messages along an axis and needs no gather, so its
    gradient needs no scatter: compiled for one CPU thread, PyTorch 2.5.1 keeps only one of the
    messages that an ``index_add`` should add (pytorch/pytorch#147961).

    Args:
        parameters: Weights from ``make_parameters``, in the dtype of ``positions``.
        atomic_numbers: Shape ``[n_atoms]``, int64, each in ``[1, 100]``.
        positions: Shape ``[n_atoms, 3]``, in Å.

    Returns:
        Energy in eV, a tensor without axes.

    Raises:
        ValueError: If a shape or a dtype is wrong, or if there is no atom.
    """
    _check(atomic_numbers, positions)
    itself = torch.eye(positions.shape[0], dtype=torch.bool, device=positions.device)
    difference = positions[None, :, :] - positions[:, None, :]  # [receiver, sender, 3]
    # The diagonal gets the distance 1: the root of 0 has no derivative.
    d = difference.square().sum(dim=-1).masked_fill(itself, 1.0).sqrt()
    near = (d <= CUTOFF) & ~itself
    unit = difference / (d[..., None] + DISTANCE_EPS)
    radial = _radial(d)
    s = parameters["embedding"][atomic_numbers]
    v = s.new_zeros(s.shape[0], 3, s.shape[1])
    for p in parameters["layers"]:
        filters = _filters(radial.flatten(0, 1), p)
        ws, wv, wr = (w.view(*near.shape, N_FEATURES) * near[..., None] for w in filters)
        to_v = v * wv[:, :, None, :] + unit[..., None] * wr[:, :, None, :]
        s = s + (s * ws).sum(dim=1)
        v = v + to_v.sum(dim=1)
        s, v = _updated(s, v, p)
    return _perceptron(s, parameters, "readout", 3).sum()


def energy_forces(
    parameters: StudentParameters, atomic_numbers: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return energy and forces, the negative gradient by autograd.

    Args:
        parameters: Weights from ``make_parameters``, in the dtype of ``positions``.
        atomic_numbers: Shape ``[n_atoms]``, int64, each in ``[1, 100]``.
        positions: Shape ``[n_atoms, 3]``, in Å.

    Returns:
        Energy in eV, a tensor without axes, and forces in eV/Å, shape ``[n_atoms, 3]``; not finite
        if ``positions`` are not.

    Raises:
        ValueError: If a shape or a dtype is wrong, if there is no atom, or if an atomic number is
            out of range.
    """
    _check(atomic_numbers, positions)
    for atom, number in enumerate(atomic_numbers.tolist()):
        if not 1 <= number <= MAX_ATOMIC_NUMBER:
            raise ValueError(
                f"atomic_numbers must be in [1, {MAX_ATOMIC_NUMBER}], got {number} for atom {atom}"
            )
    with torch.enable_grad():
        x = positions.detach().requires_grad_()
        e = energy(parameters, atomic_numbers, x)
        if not e.requires_grad:  # a single atom: no edge, nothing depends on its position
            return e.detach(), torch.zeros_like(x)
        (gradient,) = torch.autograd.grad(e, x)
    return e.detach(), -gradient


def _radial(d: torch.Tensor) -> torch.Tensor:
    """Return the 20 radial functions of distances times the cutoff function, on a new last axis."""
    centres = torch.linspace(0.0, CUTOFF, N_RADIAL, dtype=d.dtype, device=d.device)
    cut = 0.5 * (torch.cos(d * (math.pi / CUTOFF)) + 1.0) * (d < CUTOFF)
    scaled = (d[..., None] - centres) / RADIAL_WIDTH
    return torch.exp(-scaled.square()) * cut[..., None]


def _filters(
    radial: torch.Tensor, p: StudentParameters
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the filters of scalars, of vectors and of directions, ``[n_edges, F]`` each."""
    # TorchScript's gradient of chunk is wrong if a part is not used, as in the last layer.
    ws, wv, wr = _perceptron(radial, p, "filter", 2).split(N_FEATURES, dim=-1)
    return ws, wv, wr


def _updated(
    s: torch.Tensor, v: torch.Tensor, p: StudentParameters
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scalars and vectors after each atom's own network."""
    norm = torch.linalg.vector_norm(v, dim=1)
    a = _perceptron(torch.cat((s, norm), dim=-1), p, "update", 2)
    a_s, a_v, a_mixed = a.split(N_FEATURES, dim=-1)
    mixed = torch.einsum("cd,ndf->ncf", p["mixing"], v)
    return s + a_s, v * a_v[:, None, :] + mixed * a_mixed[:, None, :]


def _perceptron(x: torch.Tensor, p: StudentParameters, name: str, n_layers: int) -> torch.Tensor:
    """Return what the dense layers of a name make of ``x``, with SiLU between them."""
    for n in range(1, n_layers):
        x = silu(torch.addmm(p[f"{name}_b{n}"], x, p[f"{name}_w{n}"]))
    return torch.addmm(p[f"{name}_b{n_layers}"], x, p[f"{name}_w{n_layers}"])


def _check(atomic_numbers: torch.Tensor, positions: torch.Tensor) -> None:
    if not positions.dtype.is_floating_point:
        raise ValueError(f"positions must be real floating point, got {positions.dtype}")
    if positions.ndim != 2 or positions.shape[1] != 3:  # noqa: PLR2004  (axes, and x, y, z)
        raise ValueError(f"positions must have shape [n_atoms, 3], got {list(positions.shape)}")
    if positions.shape[0] == 0:
        raise ValueError("positions must hold at least one atom, got none")
    if atomic_numbers.dtype != torch.int64:
        raise ValueError(f"atomic_numbers must be int64, got {atomic_numbers.dtype}")
    if atomic_numbers.ndim != 1 or atomic_numbers.shape[0] != positions.shape[0]:
        raise ValueError(
            f"atomic_numbers must have shape [{positions.shape[0]}], one per position, "
            f"got {list(atomic_numbers.shape)}"
        )
