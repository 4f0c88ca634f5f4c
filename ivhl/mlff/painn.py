"""PaiNN, an equivariant message-passing network, for one molecule with all pairs of atoms.

Atoms carry scalars ``s`` (shape ``[n_atoms, F]``) and vectors ``v`` (``[n_atoms, 3, F]``). Every
atom sends a message to every other one within the cutoff; pairs are kept as a dense square, which
for molecules of a few dozen atoms is faster than a neighbour list.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.nn.functional import silu

if TYPE_CHECKING:
    from collections.abc import Callable

Parameters = dict[str, Any]

CUTOFF: Final = 5.0  # Å
N_FEATURES: Final = 128
N_INTERACTIONS: Final = 3
N_RADIAL: Final = 20
MAX_ATOMIC_NUMBER: Final = 100
# Added under square roots: the norm of a zero vector has no derivative, and a wrong substitute
# breaks the symmetry of the forces. By symmetry, the carbon of CH4 has zero vectors.
NORM_EPS: Final = 1e-8
_SHORT: Final = (torch.float16, torch.bfloat16)


def make_parameters(generator: torch.Generator) -> Parameters:
    """Draw random, untrained weights: their energies and forces have no physical meaning.

    Args:
        generator: Source of all random numbers.

    Returns:
        Nested dictionaries and lists of float64 tensors, 589,185 numbers. Weights have shape
        ``[n_in, n_out]`` and variance ``1 / n_in``, so that activations keep their size. Those of
        radial function ``n`` are ``n`` times smaller, as in a smooth filter: energies are then a
        few eV and forces some tenths of an eV/Å.
    """
    f = N_FEATURES
    smooth = 1.0 / torch.arange(1, N_RADIAL + 1, dtype=torch.float64)[:, None]

    def weight(n_in: int, n_out: int) -> torch.Tensor:
        w = torch.randn(n_in, n_out, dtype=torch.float64, generator=generator)
        return w / math.sqrt(n_in)

    def bias(n_out: int) -> torch.Tensor:
        return 0.1 * torch.randn(n_out, dtype=torch.float64, generator=generator)

    def layer() -> Parameters:
        return {
            "message_w1": weight(f, f),
            "message_b1": bias(f),
            "message_w2": weight(f, 3 * f),
            "message_b2": bias(3 * f),
            "filter_w": smooth * weight(N_RADIAL, 3 * f),
            "filter_b": bias(3 * f),
            "mix_u": weight(f, f),
            "mix_v": weight(f, f),
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
        "readout_w2": weight(f // 2, 1),
        "readout_b2": bias(1),
    }


def energy(
    parameters: Parameters, atomic_numbers: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Return the energy of a molecule, computed literally from the paper.

    Args:
        parameters: Weights, in the form of ``make_parameters``, in the dtype of ``positions``.
        atomic_numbers: Shape ``[n_atoms]``, int64, each in ``[1, 100]``.
        positions: Shape ``[n_atoms, 3]``, in Å.

    Returns:
        Energy in eV, a tensor without axes.

    Raises:
        ValueError: If a shape or a dtype is wrong.

    Source:
        Schütt, Unke and Gastegger, PaiNN, arXiv:2102.03150, eqs. (7)-(10) and fig. 2; the cutoff
        multiplies the filter, its bias included, so that the energy is smooth there.
    """
    check_molecule(atomic_numbers, positions)
    unit, radial, cut = pairs_of(positions)
    s = parameters["embedding"][atomic_numbers]
    v = s.new_zeros(s.shape[0], 3, s.shape[1])
    for p in parameters["layers"]:
        w = (radial @ p["filter_w"] + p["filter_b"]) * cut[..., None]  # [i, j, 3F]
        x = silu(s @ p["message_w1"] + p["message_b1"]) @ p["message_w2"] + p["message_b2"]
        ws, wv, wr = w.chunk(3, dim=-1)
        xs, xv, xr = x.chunk(3, dim=-1)
        s = s + torch.einsum("ijf,jf->if", ws, xs)
        v = (
            v
            + torch.einsum("ijf,jf,jcf->icf", wv, xv, v)
            + torch.einsum("ijf,jf,ijc->icf", wr, xr, unit)
        )
        uv, vv = v @ p["mix_u"], v @ p["mix_v"]
        norm = (wide_of(vv).square().sum(dim=1) + NORM_EPS).sqrt().to(vv.dtype)
        h = silu(torch.cat((s, norm), dim=-1) @ p["update_w1"] + p["update_b1"])
        a_ss, a_sv, a_vv = (h @ p["update_w2"] + p["update_b2"]).chunk(3, dim=-1)
        s = s + a_ss + a_sv * torch.einsum("icf,icf->if", uv, vv)
        v = v + a_vv[:, None, :] * uv
    h = silu(s @ parameters["readout_w1"] + parameters["readout_b1"])
    return (h @ parameters["readout_w2"] + parameters["readout_b2"]).sum()


def energy_forces(
    parameters: Parameters, atomic_numbers: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return energy and forces: the energy, then its gradient by autograd.

    Args:
        parameters: Weights, in the form of ``make_parameters``, in the dtype of ``positions``.
        atomic_numbers: Shape ``[n_atoms]``, int64, each in ``[1, 100]``.
        positions: Shape ``[n_atoms, 3]``, in Å.

    Returns:
        Energy in eV, a tensor without axes, and forces in eV/Å, shape ``[n_atoms, 3]``.

    Raises:
        ValueError: If a shape or a dtype is wrong.
    """
    return _differentiated(energy, parameters, atomic_numbers, positions)


def make_energy_forces(
    compiler: Callable[..., Callable[..., torch.Tensor]],
) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """Return ``energy_forces`` with the energy compiled and autograd outside: the naive form.

    Args:
        compiler: Compiles a function, e.g. ``torch.compile``; the identity leaves it eager.

    Returns:
        A function with the arguments and the results of ``energy_forces``.
    """
    compiled = compiler(energy)

    def call(
        parameters: Parameters, atomic_numbers: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return _differentiated(compiled, parameters, atomic_numbers, positions)

    return call


def energy_forces_one_graph(
    parameters: Parameters, atomic_numbers: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return energy and forces as one function of the positions, gradient included.

    Dynamo traces ``torch.func.grad`` with the energy, so one graph holds forward and backward pass
    and stores nothing for autograd. Contractions over pairs are multiplications and sums, which
    fuse; ``torch.einsum`` would call a batched matrix multiplication for tiny matrices.

    Args:
        parameters: Weights, in the form of ``make_parameters``, in the dtype of ``positions``.
        atomic_numbers: Shape ``[n_atoms]``, int64, each in ``[1, 100]``.
        positions: Shape ``[n_atoms, 3]``, in Å.

    Returns:
        Energy in eV, a tensor without axes, and forces in eV/Å, shape ``[n_atoms, 3]``.

    Raises:
        ValueError: If a shape or a dtype is wrong.
    """
    check_molecule(atomic_numbers, positions)

    def of_positions(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        e = _energy_in_sums(parameters, atomic_numbers, x)
        return e, e

    gradient, e = torch.func.grad(of_positions, has_aux=True)(positions)
    return e, -gradient


def energy_forces_in_sums(
    parameters: Parameters, atomic_numbers: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the result of ``energy_forces_one_graph``, differentiated by autograd.

    For ``make_fx``, which records operations as they run: TorchScript fails, in 2.5.1 and 2.15.0,
    to trace what ``make_fx`` records of ``torch.func.grad``.

    Args:
        parameters: Weights, in the form of ``make_parameters``, in the dtype of ``positions``.
        atomic_numbers: Shape ``[n_atoms]``, int64, each in ``[1, 100]``.
        positions: Shape ``[n_atoms, 3]``, in Å.

    Returns:
        Energy in eV, a tensor without axes, and forces in eV/Å, shape ``[n_atoms, 3]``.

    Raises:
        ValueError: If a shape or a dtype is wrong.
    """
    return _differentiated(_energy_in_sums, parameters, atomic_numbers, positions)


def _energy_in_sums(
    parameters: Parameters, atomic_numbers: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Return ``energy``, without zero terms of the first layer and unused ones of the last."""
    unit, radial, cut = pairs_of(positions)
    n_atoms = positions.shape[0]
    # The bias is the weight of one more radial function, 1; the cutoff then multiplies 21 numbers
    # per pair instead of 384.
    radial = torch.cat((radial, torch.ones_like(cut)[..., None]), dim=-1) * cut[..., None]
    radial = radial.reshape(n_atoms * n_atoms, N_RADIAL + 1)
    s = parameters["embedding"][atomic_numbers]
    v: torch.Tensor | None = None
    for number, p in enumerate(parameters["layers"]):
        w = radial @ torch.cat((p["filter_w"], p["filter_b"][None, :]), dim=0)
        ws, wv, wr = w.view(n_atoms, n_atoms, -1).chunk(3, dim=-1)
        h = silu(torch.addmm(p["message_b1"], s, p["message_w1"]))
        xs, xv, xr = torch.addmm(p["message_b2"], h, p["message_w2"]).chunk(3, dim=-1)
        s = s + (ws * xs).sum(dim=1)
        along = ((wr * xr)[:, :, None, :] * unit[..., None]).sum(dim=1)
        if v is None:
            v = along
        else:
            v = v + ((wv * xv)[:, :, None, :] * v[None, :, :, :]).sum(dim=1) + along
        uv, vv = v @ p["mix_u"], v @ p["mix_v"]
        wide = wide_of(vv)
        norm = ((wide * wide).sum(dim=1) + NORM_EPS).sqrt().to(vv.dtype)
        h = silu(torch.addmm(p["update_b1"], torch.cat((s, norm), dim=-1), p["update_w1"]))
        last = number == len(parameters["layers"]) - 1
        n_out = (2 if last else 3) * s.shape[1]
        a = torch.addmm(p["update_b2"][:n_out], h, p["update_w2"][:, :n_out])
        a_ss, a_sv, *a_vv = a.split(s.shape[1], dim=-1)
        s = s + a_ss + a_sv * (uv * vv).sum(dim=1)
        if not last:
            v = v + a_vv[0][:, None, :] * uv
    h = silu(torch.addmm(parameters["readout_b1"], s, parameters["readout_w1"]))
    return (h @ parameters["readout_w2"] + parameters["readout_b2"]).sum()


def wide_of(vectors: torch.Tensor) -> torch.Tensor:
    """Return the vectors in float32 if their type is shorter.

    In float16 ``NORM_EPS`` underflows to zero, and so does the square of a number below 2e-4: the
    norm would have no derivative there, and forces would be NaN.
    """
    return vectors.float() if vectors.dtype in _SHORT else vectors


def _differentiated(
    energy_of: Callable[..., torch.Tensor],
    parameters: Parameters,
    atomic_numbers: torch.Tensor,
    positions: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    check_molecule(atomic_numbers, positions)
    with torch.enable_grad():
        x = positions.detach().requires_grad_()
        e = energy_of(parameters, atomic_numbers, x)
        (gradient,) = torch.autograd.grad(e, x)
    return e.detach(), -gradient


def pairs_of(positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return unit vectors ``[i, j, 3]``, radial functions ``[i, j, 20]`` and cutoff ``[i, j]``.

    The diagonal gets distance 1 and cutoff 0: no atom sends to itself, and neither values nor
    derivatives divide by zero.
    """
    n_atoms = positions.shape[0]
    itself = torch.eye(n_atoms, dtype=torch.bool, device=positions.device)
    difference = positions[None, :, :] - positions[:, None, :]
    d = difference.square().sum(dim=-1).masked_fill(itself, 1.0).sqrt()
    orders = torch.arange(1, N_RADIAL + 1, dtype=positions.dtype, device=positions.device)
    radial = torch.sin(orders * (math.pi / CUTOFF) * d[..., None]) / d[..., None]
    cut = 0.5 * (torch.cos(d * (math.pi / CUTOFF)) + 1.0)
    cut = cut.masked_fill(itself | (d >= CUTOFF), 0.0)
    return difference / d[..., None], radial, cut


def check_molecule(atomic_numbers: torch.Tensor, positions: torch.Tensor) -> None:
    """Check shapes and dtypes of a molecule.

    Raises:
        ValueError: If a shape or a dtype is wrong, or there is no atom.
    """
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
