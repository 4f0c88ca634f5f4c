"""The same operator by the map from three coarse sites to the six fine ones under them.

That map costs ``chi^12``: 100 s on one core at ``chi = 8``. From ``LARGE`` on its tensors are
contracted one by one, for ``chi^9``; ``tests/unit/test_ops_mera.py`` compares both ways at smaller
sizes.
"""

from __future__ import annotations

import torch

from benchmarks.mera.mera_ascend import LARGE


def reference(
    operator: torch.Tensor, disentangler: torch.Tensor, isometry: torch.Tensor
) -> torch.Tensor:
    """Return the operator on three coarse sites, six axes, rows first, complex128.

    Each coarse basis state is a column of six fine sites: isometries on (0, 1), (2, 3), (4, 5), then
    inverse disentanglers on (1, 2), (3, 4). The operator acts on (1, 2, 3) in one cone and on
    (2, 3, 4) in the other.
    """
    chi, coarse = isometry.shape[1:]
    if chi >= LARGE:
        return by_network(operator, disentangler, isometry)
    states = states_of_six(disentangler, isometry)
    matrix = operator.to(torch.complex128).reshape(chi**3, chi**3)
    columns = states.reshape(-1, coarse**3)
    total = sum(
        columns.mH @ _apply(matrix, states, first, 3).reshape(-1, coarse**3) for first in (1, 2)
    )
    return 0.5 * torch.as_tensor(total).reshape((coarse,) * 6)


def by_network(
    operator: torch.Tensor, disentangler: torch.Tensor, isometry: torch.Tensor
) -> torch.Tensor:
    """Return the same as ``reference``, from all tensors of both cones.

    Fine sites are ``a`` to ``f``, coarse ones ``p`` to ``r``, and ``t`` to ``w`` are between
    isometries and disentanglers. Capitals belong to the bra.
    """
    net = Network(disentangler, isometry)
    o = operator.to(torch.complex128)
    left = torch.einsum("BCDbcd,TUBC->DbcdTU", o, net.u)
    left = torch.einsum("DbcdTU,tubc->DdTUtu", left, net.u_inverse)
    left = torch.einsum("DdTUtu,WDeUQ->dTtuWeQ", left, net.bra_right)
    left = torch.einsum("dTtuWeQ,wdeuq->TtWQwq", left, net.ket_right)
    left = torch.einsum("TtWQwq,WRwr->TtQqRr", left, net.last)
    right = torch.einsum("CDEcde,VWDE->CcdeVW", o, net.u)
    right = torch.einsum("CcdeVW,vwde->CcVWvw", right, net.u_inverse)
    right = torch.einsum("CcVWvw,WRwr->CcVvRr", right, net.last)
    right = torch.einsum("CcVvRr,TbCVQ->cvRrTbQ", right, net.bra_left)
    right = torch.einsum("cvRrTbQ,tbcvq->TtQqRr", right, net.ket_left)
    return 0.5 * torch.einsum("TtQqRr,TPtp->PQRpqr", left + right, net.first)


class Network:
    """The tensors of ``states_of_six``, joined where no site of a cone is between them.

    Attributes:
        u: Disentangler in the bra; ``u_inverse`` is that in the ket.
        first: Isometries on the sites (0, 1), joined at site 0; ``last`` on (4, 5), at site 5.
        ket_left: Disentangler on (1, 2) and the isometry on (2, 3); ``bra_left`` likewise.
        ket_right: Disentangler on (3, 4) and the isometry on (2, 3); ``bra_right`` likewise.
    """

    def __init__(self, disentangler: torch.Tensor, isometry: torch.Tensor) -> None:
        w = isometry.to(torch.complex128)
        self.u = disentangler.to(torch.complex128)
        self.u_inverse = self.u.conj()
        self.first = torch.einsum("atp,aTP->TPtp", w, w.conj())
        self.last = torch.einsum("wfr,WfR->WRwr", w, w.conj())
        self.ket_left = torch.einsum("tubc,uvq->tbcvq", self.u_inverse, w)
        self.bra_left = torch.einsum("TUbC,UVQ->TbCVQ", self.u, w.conj())
        self.ket_right = torch.einsum("vwde,uvq->wdeuq", self.u_inverse, w)
        self.bra_right = torch.einsum("VWDe,UVQ->WDeUQ", self.u, w.conj())


def states_of_six(disentangler: torch.Tensor, isometry: torch.Tensor) -> torch.Tensor:
    """Return what each state of three coarse sites is on the six fine ones under them.

    Returns:
        Six axes of size ``chi``, and one of size ``chi_coarse^3``; complex128.
    """
    chi, coarse = isometry.shape[1:]
    w = isometry.to(torch.complex128).reshape(chi * chi, coarse)
    states = torch.kron(torch.kron(w, w), w).reshape((chi,) * 6 + (coarse**3,))
    back = disentangler.to(torch.complex128).reshape(chi * chi, chi * chi).mH
    for first in (1, 3):
        states = _apply(back, states, first, 2)
    return states


def _apply(matrix: torch.Tensor, states: torch.Tensor, first: int, n: int) -> torch.Tensor:
    """Apply a matrix to ``n`` neighbouring axes."""
    axes = tuple(range(first, first + n))
    moved = states.movedim(axes, tuple(range(n)))
    after = (matrix @ moved.reshape(matrix.shape[1], -1)).reshape(moved.shape)
    return after.movedim(tuple(range(n)), axes)
