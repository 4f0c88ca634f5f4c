"""PaiNN with weights packed once, as an application does at start-up.

Computes the function of ``ivhl.mlff.batch`` for one molecule without padding, with fewer and larger
matrix multiplications: weights that multiply the same numbers are concatenated, and terms that
depend on the element alone are a table.

The layer is written here a second time, since it is other operations: each multiplication adds its
bias (``addmm``), filters and mixings come from one multiplication, and sums have another order. Put
together with ``batch``, one of the two would not compile to what was measured. What both have in
common comes from ``painn``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import silu

from ivhl.mlff.painn import (
    N_RADIAL,
    Parameters,
    check_molecule,
    filter_of,
    gated,
    norms_of,
    perceptron,
    product_of_few,
    radial_functions,
    sum_of_products,
    sums_products,
    times_itself,
    with_constant,
)

Packed = dict[str, Any]


def pack_parameters(parameters: Parameters) -> Packed:
    """Return weights packed for ``packed_energy_forces``, in their dtype. Call it once.

    * The filters of all layers are one matrix multiplication by the radial functions. Their biases
      are weights of one more radial function, 1. The first layer has no vectors to multiply, so
      that part is omitted.
    * The message of the first layer depends on the sender's element alone: it is a table.
    * Both mixings of vectors are one matrix multiplication.
    * The vectors after the last layer are not used: that part of its update is omitted.

    Args:
        parameters: As ``painn.make_parameters`` makes them, or trained ones of the same form.

    Returns:
        Nested dictionaries and lists of tensors.
    """
    layers = parameters["layers"]
    first, f = layers[0], parameters["embedding"].shape[1]
    # Parts of a message: for scalars, for vectors from vectors, for vectors from directions.
    from_elements = torch.cat((torch.arange(f), torch.arange(2 * f, 3 * f)))
    from_elements = from_elements.to(parameters["embedding"].device)
    messages = perceptron(parameters["embedding"], first, "message")
    filters = [filter_of(p) for p in layers]
    filters[0] = filters[0][:, from_elements]
    return {
        "embedding": parameters["embedding"],
        "messages": messages[:, from_elements].contiguous(),
        "filters": torch.cat(filters, dim=1),
        "layers": [_pack_layer(p, is_first=p is first, is_last=p is layers[-1]) for p in layers],
        "readout_w1": parameters["readout_w1"],
        "readout_b1": parameters["readout_b1"],
        "readout_w2": parameters["readout_w2"][:, 0].contiguous(),
        "readout_b2": parameters["readout_b2"],
    }


def packed_energy_forces(
    packed: Packed, atomic_numbers: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return energy and forces as one function of the positions, gradient included.

    Args:
        packed: Weights from ``pack_parameters``, in the dtype of ``positions``.
        atomic_numbers: Shape ``[n_atoms]``, int64, each in ``[1, 100]``.
        positions: Shape ``[n_atoms, 3]``, in Å.

    Returns:
        Energy in eV, a tensor without axes, and forces in eV/Å, shape ``[n_atoms, 3]``.

    Raises:
        ValueError: If a shape or a dtype is wrong.

    Source:
        Schütt, Unke and Gastegger, PaiNN, arXiv:2102.03150, eqs. (7)-(10), as in ``painn``.
    """
    check_molecule(atomic_numbers, positions)

    def of_positions(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        e = _energy(packed, atomic_numbers, x)
        return e, e

    gradient, e = torch.func.grad(of_positions, has_aux=True)(positions)
    return e, -gradient


def pairs_of(positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return unit vectors ``[i, j, 3]``, radial functions ``[i, j, 20]`` and cutoff ``[i, j]``.

    The diagonal gets distance 1 and cutoff 0: no atom sends to itself, and neither values nor
    derivatives divide by zero.
    """
    n_atoms = positions.shape[0]
    itself = torch.eye(n_atoms, dtype=torch.bool, device=positions.device)
    difference = positions[None, :, :] - positions[:, None, :]
    d = difference.square().sum(dim=-1).masked_fill(itself, 1.0).sqrt()
    radial, cut = radial_functions(d, itself)
    return difference / d[..., None], radial, cut


def _pack_layer(p: Parameters, *, is_first: bool, is_last: bool) -> Packed:
    f = p["mix_u"].shape[0]
    n_out = (2 if is_last else 3) * f
    layer = {
        "mix": torch.cat((p["mix_u"], p["mix_v"]), dim=1),
        "update_w1": p["update_w1"],
        "update_b1": p["update_b1"],
        "update_w2": p["update_w2"][:, :n_out].contiguous(),
        "update_b2": p["update_b2"][:n_out].contiguous(),
    }
    if is_first:
        return layer
    return layer | {name: p[name] for name in p if name.startswith("message_")}


def _layer(bias: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    if sums_products(x):
        return sum_of_products(x, weight) + bias
    return torch.addmm(bias, x, weight)


def _energy(packed: Packed, atomic_numbers: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    unit, radial, cut = pairs_of(positions)
    n_atoms = positions.shape[0]
    radial = with_constant(radial, cut)
    w = radial.reshape(n_atoms * n_atoms, N_RADIAL + 1) @ packed["filters"]
    s = packed["embedding"][atomic_numbers]
    f = s.shape[1]
    filters = list(w.view(n_atoms, n_atoms, -1).split(f, dim=-1))
    v: torch.Tensor | None = None
    for number, p in enumerate(packed["layers"]):
        if v is None:
            xs, xr = packed["messages"][atomic_numbers].chunk(2, dim=-1)
            ws, wr = filters[:2]
            v = ((wr * xr)[:, :, None, :] * unit[..., None]).sum(dim=1)
        else:
            h = silu(_layer(p["message_b1"], s, p["message_w1"]))
            xs, xv, xr = _layer(p["message_b2"], h, p["message_w2"]).chunk(3, dim=-1)
            ws, wv, wr = filters[3 * number - 1 : 3 * number + 2]
            v = (
                v
                + ((wv * xv)[:, :, None, :] * v[None, :, :, :]).sum(dim=1)
                + ((wr * xr)[:, :, None, :] * unit[..., None]).sum(dim=1)
            )
        s = s + (ws * xs).sum(dim=1)
        uv, vv = (
            product_of_few(v.reshape(3 * n_atoms, f), p["mix"])
            .view(n_atoms, 3, 2 * f)
            .chunk(2, dim=-1)
        )
        x = torch.cat((s, norms_of(vv, squared=times_itself)), dim=-1)
        h = silu(_layer(p["update_b1"], x, p["update_w1"]))
        s, v = gated(s, v, uv, vv, _layer(p["update_b2"], h, p["update_w2"]))
    h = silu(_layer(packed["readout_b1"], s, packed["readout_w1"]))
    return (h * packed["readout_w2"]).sum() + n_atoms * packed["readout_b2"].sum()
