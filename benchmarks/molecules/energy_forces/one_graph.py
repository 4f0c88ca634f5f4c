"""PaiNN for one molecule in multiplications and sums, which fuse: energy and gradient as one graph.

A form to compare with: ``ivhl.mlff.batch`` does the same for padded batches, ``ivhl.mlff.packed``
with weights packed once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import silu

from benchmarks.molecules.energy_forces.literal import differentiated
from ivhl.mlff.packed import pairs_of
from ivhl.mlff.painn import N_RADIAL, NORM_EPS, check_molecule, wide_of

if TYPE_CHECKING:
    from ivhl.mlff.painn import Parameters


def energy_forces_one_graph(
    parameters: Parameters, atomic_numbers: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return energy and forces as one function of the positions, gradient included.

    Dynamo traces ``torch.func.grad`` with the energy, so one graph holds forward and backward pass
    and stores nothing for autograd. Contractions over pairs are multiplications and sums, which
    fuse; ``torch.einsum`` would call a batched matrix multiplication for tiny matrices.

    Args:
        parameters: Weights, in the form of ``painn.make_parameters``, in the dtype of ``positions``.
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
        parameters: Weights, in the form of ``painn.make_parameters``, in the dtype of ``positions``.
        atomic_numbers: Shape ``[n_atoms]``, int64, each in ``[1, 100]``.
        positions: Shape ``[n_atoms, 3]``, in Å.

    Returns:
        Energy in eV, a tensor without axes, and forces in eV/Å, shape ``[n_atoms, 3]``.

    Raises:
        ValueError: If a shape or a dtype is wrong.
    """
    return differentiated(_energy_in_sums, parameters, atomic_numbers, positions)


def _energy_in_sums(
    parameters: Parameters, atomic_numbers: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Return ``literal.energy``, without zero terms of the first layer, unused ones of the last."""
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
