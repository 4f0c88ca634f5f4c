"""PaiNN once more: a list of edges, separate x, y and z, and derivatives by complex steps."""

from __future__ import annotations

import math
from typing import Any

import torch

CUTOFF = 5.0  # Å; repeated on purpose: the reference shares no code with the model
N_RADIAL = 20
NORM_EPS = 1e-8
STEP = 1e-30  # Å; no subtraction, so any small step is exact


def reference(
    parameters: dict[str, Any], atomic_numbers: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return energy in eV and forces in eV/Å, shape ``[n_atoms, 3]``, float64.

    The model differentiates backwards through a dense square of pairs. Here the edges are a list,
    and autograd has no part in it: the energy is an analytic function of each coordinate, so
    ``dE/dx = Im E(x + i h) / h``, exact to rounding for a tiny ``h``.

    Source:
        Squire and Trapp, SIAM Review 40, 110 (1998).
    """
    with torch.no_grad():
        weights = _to_complex(parameters)
        forces = torch.zeros_like(positions)
        for i in range(positions.shape[0]):
            for axis in range(3):
                moved = positions.to(torch.complex128)
                moved[i, axis] += 1j * STEP
                forces[i, axis] = -_energy(weights, atomic_numbers, moved).imag / STEP
        total = _energy(weights, atomic_numbers, positions.to(torch.complex128)).real
    return total, forces


def _to_complex(node: Any) -> Any:  # noqa: ANN401  (a nest of tensors)
    if isinstance(node, dict):
        return {name: _to_complex(child) for name, child in node.items()}
    if isinstance(node, list):
        return [_to_complex(child) for child in node]
    return node.to(torch.complex128)


def _energy(
    parameters: dict[str, Any], atomic_numbers: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    n_atoms = positions.shape[0]
    edges = [
        (i, j)
        for i in range(n_atoms)
        for j in range(n_atoms)
        if i != j and float(torch.dist(positions[i].real, positions[j].real)) < CUTOFF
    ]
    to = torch.tensor([i for i, _ in edges], dtype=torch.int64, device=positions.device)
    sent_by = torch.tensor([j for _, j in edges], dtype=torch.int64, device=positions.device)
    along = positions[sent_by] - positions[to]
    d = torch.sqrt(along[:, 0] ** 2 + along[:, 1] ** 2 + along[:, 2] ** 2)
    unit = [along[:, c] / d for c in range(3)]
    radial = torch.stack(
        [torch.sin(n * math.pi / CUTOFF * d) / d for n in range(1, N_RADIAL + 1)], dim=1
    )
    cut = torch.cos(math.pi / (2.0 * CUTOFF) * d) ** 2  # = (1 + cos(pi d / cutoff)) / 2

    s = torch.stack([parameters["embedding"][int(z)] for z in atomic_numbers])
    f = s.shape[1]
    v = [torch.zeros_like(s) for _ in range(3)]  # x, y and z as separate arrays [n_atoms, f]
    for p in parameters["layers"]:
        w = cut[:, None] * _linear(radial, p["filter_w"], p["filter_b"])
        hidden = _swish(_linear(s, p["message_w1"], p["message_b1"]))
        x = _linear(hidden, p["message_w2"], p["message_b2"])[sent_by] * w
        s = s.index_add(0, to, x[:, :f])
        v = [
            v[c].index_add(
                0, to, v[c][sent_by] * x[:, f : 2 * f] + x[:, 2 * f :] * unit[c][:, None]
            )
            for c in range(3)
        ]
        uv = [torch.mm(v[c], p["mix_u"]) for c in range(3)]
        vv = [torch.mm(v[c], p["mix_v"]) for c in range(3)]
        length = torch.sqrt(vv[0] ** 2 + vv[1] ** 2 + vv[2] ** 2 + NORM_EPS)
        w1 = p["update_w1"]
        hidden = _swish(_linear(s, w1[:f], p["update_b1"]) + torch.mm(length, w1[f:]))
        a = _linear(hidden, p["update_w2"], p["update_b2"])
        product = uv[0] * vv[0] + uv[1] * vv[1] + uv[2] * vv[2]
        s = s + a[:, :f] + a[:, f : 2 * f] * product
        v = [v[c] + a[:, 2 * f :] * uv[c] for c in range(3)]
    hidden = _swish(_linear(s, parameters["readout_w1"], parameters["readout_b1"]))
    return _linear(hidden, parameters["readout_w2"], parameters["readout_b2"]).sum()


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.mm(x, weight) + bias


def _swish(x: torch.Tensor) -> torch.Tensor:
    return x / (1.0 + torch.exp(-x))
