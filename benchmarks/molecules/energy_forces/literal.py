"""PaiNN literally from the paper, for one molecule: the eager baseline, and the naive compiled form.

The force field itself is ``ivhl.mlff``; this is what its forms are compared with. Pairs are a dense
square, and contractions over them are einsums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import silu

from ivhl.mlff.packed import pairs_of
from ivhl.mlff.painn import NORM_EPS, check_molecule, wide_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.mlff.painn import Parameters


def energy(
    parameters: Parameters, atomic_numbers: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Return the energy of a molecule, computed literally from the paper.

    Args:
        parameters: Weights, in the form of ``painn.make_parameters``, in the dtype of ``positions``.
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
        parameters: Weights, in the form of ``painn.make_parameters``, in the dtype of ``positions``.
        atomic_numbers: Shape ``[n_atoms]``, int64, each in ``[1, 100]``.
        positions: Shape ``[n_atoms, 3]``, in Å.

    Returns:
        Energy in eV, a tensor without axes, and forces in eV/Å, shape ``[n_atoms, 3]``.

    Raises:
        ValueError: If a shape or a dtype is wrong.
    """
    return differentiated(energy, parameters, atomic_numbers, positions)


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
        return differentiated(compiled, parameters, atomic_numbers, positions)

    return call


def differentiated(
    energy_of: Callable[..., torch.Tensor],
    parameters: Parameters,
    atomic_numbers: torch.Tensor,
    positions: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the energy that a function computes, and forces by autograd outside of it."""
    check_molecule(atomic_numbers, positions)
    with torch.enable_grad():
        x = positions.detach().requires_grad_()
        e = energy_of(parameters, atomic_numbers, x)
        (gradient,) = torch.autograd.grad(e, x)
    return e.detach(), -gradient
