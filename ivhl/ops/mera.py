"""Multiscale entanglement renormalisation: one layer of maps from a fine to a coarse lattice.

The module has two kinds of layer. ``contract_mera_layer`` has the shapes of the first iVHL: each
pair of sites is a *direct sum* of two matrices, and both maps act on the same pair. So the product
of both is one map, which can be computed once and applied often. This layer is a tree: it does not
disentangle across pairs.

``coarse_grain``, ``refine``, ``ascend`` and ``descend`` are the binary MERA of the literature on a
periodic chain. Fine sites ``2j`` and ``2j+1`` make block ``j``. A disentangler ``u`` (unitary) acts
*across* the border of blocks, on sites ``2j+1`` and ``2j+2``; an isometry ``w`` (``w^dag w = 1``)
maps a block to one coarse site. States go up as ``psi' = W^dag U psi`` and down as
``psi = U^dag W psi'``, where ``U`` and ``W`` are products of ``u`` and ``w`` over the chain.
Unitarity is not checked: the check would cost more than the layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

Cone = Literal["average", "left", "right"]
CONES: Final[tuple[Cone, ...]] = ("average", "left", "right")
CONE_WIDTH: Final = 3

# Outputs of a map stored contiguously: one AVX-512 vector in single precision, two in double. Maps
# whose bond is not a multiple of it are one tile.
_TILE: Final = 16


def mera_layer(
    tensors: torch.Tensor, disentanglers: torch.Tensor, isometries: torch.Tensor
) -> torch.Tensor:
    """Return the coarse tensors, computed literally from the formula.

    Args:
        tensors: Shape ``[n_sites, d, d]``, complex, ``n_sites`` even.
        disentanglers: Shape ``[n_sites / 2, 2 d^2, 2 d^2]``, one per pair.
        isometries: Shape ``[n_sites / 2, 2 d^2, bond]``, one per pair.

    Returns:
        Coarse tensors, shape ``[n_sites / 2, bond]``.

    Raises:
        ValueError: If shapes, dtypes or devices do not fit.

    Source:
        Zynerji/iVHL, scripts/compiled_ops.py, ``contract_mera_layer``.
    """
    _check_layer(tensors, disentanglers, isometries)
    x = tensors.reshape(disentanglers.shape[:2])  # [n_pairs, 2 d^2]
    y = torch.einsum("pi,pij->pj", x, disentanglers)
    return torch.einsum("pj,pjk->pk", y, isometries)


def contract_mera_layer(
    tensors: torch.Tensor, disentanglers: torch.Tensor, isometries: torch.Tensor
) -> torch.Tensor:
    """Return the coarse tensors of one layer in the shapes of the first iVHL.

    Per pair ``p``: ``x = [vec T_2p ; vec T_2p+1]``, ``z = (x U) W``, with row vectors and without
    conjugation. The run time is that of reading the disentanglers once, which compiling cannot
    avoid: both matrix multiplications are library calls. To apply the same maps to many tensors,
    compute their product once with ``make_mera_map``.

    Args:
        tensors: Shape ``[n_sites, d, d]``, complex, ``n_sites`` even, may be 0.
        disentanglers: Shape ``[n_sites / 2, 2 d^2, 2 d^2]``, one per pair.
        isometries: Shape ``[n_sites / 2, 2 d^2, bond]``, one per pair.

    Returns:
        Coarse tensors, shape ``[n_sites / 2, bond]``, dtype of ``tensors``.

    Raises:
        ValueError: If shapes, dtypes or devices do not fit.
    """
    _check_layer(tensors, disentanglers, isometries)
    n_pairs, width = disentanglers.shape[:2]
    x = tensors.reshape(n_pairs, 1, width)
    return torch.bmm(torch.bmm(x, disentanglers), isometries).squeeze(1)


def make_mera_map(disentanglers: torch.Tensor, isometries: torch.Tensor) -> torch.Tensor:
    """Return the product of both maps per pair: ``U W``.

    It costs ``width^2 bond`` complex multiplications per pair, as many as ``bond`` layers, but as
    matrix multiplications. Applying it reads ``bond / width`` of the numbers that a layer reads.

    Args:
        disentanglers: Shape ``[n_pairs, width, width]``, complex.
        isometries: Shape ``[n_pairs, width, bond]``, dtype of ``disentanglers``.

    Returns:
        Map, shape ``[n_pairs, width, bond]``.

    Raises:
        ValueError: If shapes, dtypes or devices do not fit.
    """
    _check_maps(disentanglers, isometries)
    return torch.bmm(disentanglers, isometries)


def apply_mera_map(tensors: torch.Tensor, mera_map: torch.Tensor) -> torch.Tensor:
    """Return the coarse tensors, using the map from ``make_mera_map``.

    Args:
        tensors: Shape ``[n_sites, d, d]``, complex, ``n_sites`` even.
        mera_map: Shape ``[n_sites / 2, 2 d^2, bond]``.

    Returns:
        Coarse tensors, shape ``[n_sites / 2, bond]``, as from ``contract_mera_layer``.

    Raises:
        ValueError: If shapes, dtypes or devices do not fit.
    """
    n_pairs, width = _check_pairs(tensors)
    if mera_map.ndim != 3 or mera_map.shape[:2] != (n_pairs, width):  # noqa: PLR2004  (axes)
        raise ValueError(
            f"mera_map must have shape [{n_pairs}, {width}, bond], got {list(mera_map.shape)}"
        )
    _check_alike("mera_map", mera_map, "tensors", tensors)
    return torch.bmm(tensors.reshape(n_pairs, 1, width), mera_map).squeeze(1)


def pack_mera_map(mera_map: torch.Tensor) -> torch.Tensor:
    """Return the map as real planes, in the order in which ``mera_map_planes`` reads them.

    Args:
        mera_map: Shape ``[n_pairs, width, bond]``, complex.

    Returns:
        Real and imaginary part, shape ``[2, n_pairs, n_tiles, width, bond / n_tiles]``.
    """
    n_pairs, width, bond = mera_map.shape
    n_tiles = bond // _TILE if bond and bond % _TILE == 0 else 1
    tiles = mera_map.reshape(n_pairs, width, n_tiles, bond // n_tiles).transpose(1, 2)
    # One tensor: compiled code checks each of its inputs at every call.
    return torch.stack((tiles.real, tiles.imag))


def mera_map_planes(
    pairs: torch.Tensor, packed_map: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return real and imaginary part of the coarse tensors, in real arithmetic only.

    One loop per pair reads the map once, in storage order. For a large map this is faster than the
    library's product of a row and a matrix. For a small one the compiled call costs more than both.

    Args:
        pairs: Tensors, shape ``[n_sites, d, d, 2]``, real and imaginary part along the last axis.
        packed_map: Shape ``[2, n_sites / 2, n_tiles, 2 d^2, tile]``, from ``pack_mera_map``.

    Returns:
        Two planes, each of shape ``[n_sites / 2, n_tiles * tile]``.
    """
    _, n_pairs, n_tiles, width, tile = packed_map.shape
    map_re, map_im = packed_map.unbind()
    x = pairs.reshape(n_pairs, 1, width, 2)
    re, im = x[..., 0, None], x[..., 1, None]
    coarse_re = (re * map_re - im * map_im).sum(dim=2)
    coarse_im = (re * map_im + im * map_re).sum(dim=2)
    shape = (n_pairs, n_tiles * tile)
    return coarse_re.reshape(shape), coarse_im.reshape(shape)


def make_apply_mera_map(
    compiler: Callable[..., Callable[..., tuple[torch.Tensor, torch.Tensor]]],
) -> Callable[..., torch.Tensor]:
    """Return ``apply_mera_map`` for a packed map, with its real planes compiled.

    Args:
        compiler: Compiles a function, e.g. ``torch.compile``; the identity leaves it eager.

    Returns:
        A function from tensors, shape ``[n_sites, d, d]``, complex, and the planes of
        ``pack_mera_map`` to the coarse tensors, shape ``[n_sites / 2, bond]``.
    """
    planes = compiler(mera_map_planes)

    def apply(tensors: torch.Tensor, packed_map: torch.Tensor) -> torch.Tensor:
        re, im = planes(torch.view_as_real(tensors.resolve_conj()), packed_map)
        return torch.complex(re, im)

    return apply


def coarse_grain(
    psi: torch.Tensor, disentangler: torch.Tensor, isometry: torch.Tensor
) -> torch.Tensor:
    """Return the state on the coarse chain: ``W^dag U psi``.

    The isometries project, so the norm decreases unless ``psi`` comes from ``refine``.

    Args:
        psi: State of a periodic chain, one axis of size ``chi`` per site, an even number of them.
        disentangler: ``u[out1, out2, in1, in2]``, shape ``[chi, chi, chi, chi]``, unitary.
        isometry: ``w[fine1, fine2, coarse]``, shape ``[chi, chi, chi_coarse]``.

    Returns:
        State, one axis of size ``chi_coarse`` per block.

    Raises:
        ValueError: If shapes, dtypes or devices do not fit.

    Source:
        Vidal, Phys. Rev. Lett. 99, 220405 (2007); Evenbly and Vidal, Phys. Rev. B 79, 144108
        (2009), arXiv:0707.1454.
    """
    chi, chi_coarse = _check_tensors(disentangler, isometry)
    _check_alike("psi", psi, "disentangler", disentangler)
    n_blocks = psi.ndim // 2
    if psi.ndim < 2 or psi.ndim % 2 or set(psi.shape) != {chi}:  # noqa: PLR2004  (a pair)
        raise ValueError(
            f"psi must have an even number of axes of size {chi}, got shape {list(psi.shape)}"
        )
    psi = _disentangle(psi, disentangler.reshape(chi**2, chi**2))
    psi = _on_every_group(psi, isometry.reshape(chi**2, chi_coarse).mH, n_blocks)
    return psi.reshape((chi_coarse,) * n_blocks)


def refine(psi: torch.Tensor, disentangler: torch.Tensor, isometry: torch.Tensor) -> torch.Tensor:
    """Return the state on the fine chain: ``U^dag W psi``, of the same norm.

    Args:
        psi: State of a periodic chain, one axis of size ``chi_coarse`` per site, at least one.
        disentangler: ``u[out1, out2, in1, in2]``, shape ``[chi, chi, chi, chi]``, unitary.
        isometry: ``w[fine1, fine2, coarse]``, shape ``[chi, chi, chi_coarse]``.

    Returns:
        State, one axis of size ``chi`` per fine site, twice as many as ``psi`` has.

    Raises:
        ValueError: If shapes, dtypes or devices do not fit.
    """
    chi, chi_coarse = _check_tensors(disentangler, isometry)
    _check_alike("psi", psi, "disentangler", disentangler)
    n_blocks = psi.ndim
    if n_blocks == 0 or set(psi.shape) != {chi_coarse}:
        raise ValueError(
            f"psi must have at least one axis, each of size {chi_coarse}, "
            f"got shape {list(psi.shape)}"
        )
    psi = _on_every_group(psi, isometry.reshape(chi**2, chi_coarse), n_blocks)
    return _disentangle(psi.reshape((chi,) * (2 * n_blocks)), disentangler.reshape(chi**2, -1).mH)


def ascend(
    operator: torch.Tensor,
    disentangler: torch.Tensor,
    isometry: torch.Tensor,
    *,
    cone: Cone = "average",
) -> torch.Tensor:
    """Return a local operator of the fine chain on the coarse chain: ``W^dag U O U^dag W``.

    Three fine sites map to three coarse ones, the width of the causal cone of the binary MERA.
    Sites ``2j``, ``2j+1``, ``2j+2`` (left) lie under blocks ``j-1``, ``j``, ``j+1``; sites
    ``2j+1``, ``2j+2``, ``2j+3`` (right) lie under ``j``, ``j+1``, ``j+2``. A Hamiltonian has terms
    of both kinds, and their average is one coarse term per site. An operator on two sites, inside a
    block (left) or across a border (right), acts on the first two of three. Costs ``O(chi^9)``.

    Args:
        operator: ``o[row1, row2, (row3,) column1, column2 (, column3)]``, each axis ``chi``.
        disentangler: ``u[out1, out2, in1, in2]``, shape ``[chi, chi, chi, chi]``, unitary.
        isometry: ``w[fine1, fine2, coarse]``, shape ``[chi, chi, chi_coarse]``.
        cone: ``"left"``, ``"right"``, or their ``"average"``.

    Returns:
        Operator on three coarse sites, six axes of size ``chi_coarse``, rows first.

    Raises:
        ValueError: If shapes, dtypes or devices do not fit, or ``cone`` is unknown.

    Source:
        Evenbly and Vidal, Phys. Rev. B 79, 144108 (2009), section IV; left and right are its two
        terms. (Left, centre and right, on two sites, belong to the ternary MERA.)
    """
    chi, _ = _check_tensors(disentangler, isometry)
    _check_alike("operator", operator, "disentangler", disentangler)
    if operator.ndim not in (4, 6) or set(operator.shape) != {chi}:
        raise ValueError(
            f"operator must have 4 or 6 axes of size {chi}, got shape {list(operator.shape)}"
        )
    _check_cone(cone)
    if operator.ndim == 4:  # noqa: PLR2004  (two sites)
        one = torch.eye(chi, dtype=operator.dtype, device=operator.device)
        operator = torch.einsum("abAB,cC->abcABC", operator, one)
    if cone == "right":
        return _ascend_right(operator, disentangler, isometry)
    # The left cone is the mirror image of a right one.
    mirrored = _ascend_right(_mirror(operator), *_mirrored(disentangler, isometry))
    if cone == "left":
        return _mirror(mirrored)
    return 0.5 * (_mirror(mirrored) + _ascend_right(operator, disentangler, isometry))


def descend(
    density: torch.Tensor,
    disentangler: torch.Tensor,
    isometry: torch.Tensor,
    *,
    cone: Cone = "average",
) -> torch.Tensor:
    """Return the density matrix of three fine sites under three coarse ones: the dual of ``ascend``.

    ``tr(density ascend(O)) = tr(descend(density) O)`` for every ``O``, cone by cone. The trace is
    conserved. The density matrix of two sites is the partial trace of the result. Costs
    ``O(chi^9)``.

    Args:
        density: ``rho[row1, row2, row3, column1, column2, column3]``, each axis ``chi_coarse``.
        disentangler: ``u[out1, out2, in1, in2]``, shape ``[chi, chi, chi, chi]``, unitary.
        isometry: ``w[fine1, fine2, coarse]``, shape ``[chi, chi, chi_coarse]``.
        cone: ``"left"``, ``"right"``, or their ``"average"``.

    Returns:
        Density matrix, six axes of size ``chi``, rows first.

    Raises:
        ValueError: If shapes, dtypes or devices do not fit, or ``cone`` is unknown.

    Source:
        Evenbly and Vidal, Phys. Rev. B 79, 144108 (2009), section IV.
    """
    _, chi_coarse = _check_tensors(disentangler, isometry)
    _check_alike("density", density, "disentangler", disentangler)
    if density.ndim != 2 * CONE_WIDTH or set(density.shape) != {chi_coarse}:
        raise ValueError(
            f"density must have 6 axes of size {chi_coarse}, got shape {list(density.shape)}"
        )
    _check_cone(cone)
    if cone == "right":
        return _descend_right(density, disentangler, isometry)
    mirrored = _descend_right(_mirror(density), *_mirrored(disentangler, isometry))
    if cone == "left":
        return _mirror(mirrored)
    return 0.5 * (_mirror(mirrored) + _descend_right(density, disentangler, isometry))


# In the right cone, six fine sites lie under three coarse ones x, y, z. The isometries act on the
# sites (a, b), (c, d), (e, f), the disentanglers on (b, c) and (d, e). The outputs of these are the
# sites g, h, i, on which the operator acts, and j. Lower case is a row, upper case a column. Sites
# a, f and j see no operator, so their row and column are the same index. The order of contractions
# is the best that opt_einsum finds.


def _ascend_right(o: torch.Tensor, u: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    left, right, inner, inner_column = _surroundings(u, w)
    o = torch.einsum("BCGH,ghiGHI->BCghiI", u.conj(), o)
    o = torch.einsum("BCghiI,bcgh->BCiIbc", o, u)
    o = torch.einsum("BCiIbc,EIjCY->BibcYEj", o, inner_column)  # chi^9
    o = torch.einsum("BibcYEj,eijcy->BbYEey", o, inner)  # chi^9
    o = torch.einsum("BbYEey,EZez->BbYyZz", o, right)
    return torch.einsum("BbYyZz,BXbx->xyzXYZ", o, left)


def _descend_right(rho: torch.Tensor, u: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    left, right, inner, inner_column = _surroundings(u, w)
    # Rows of a density matrix are contracted with columns of an operator.
    rho = torch.einsum("EZez,XYZxyz->EexyXY", right, rho)
    rho = torch.einsum("EexyXY,EIjCY->exyXCIj", rho, inner_column)  # chi^9
    rho = torch.einsum("exyXCIj,eijcy->xXCIic", rho, inner)  # chi^9
    rho = torch.einsum("xXCIic,BXbx->CIicBb", rho, left)
    rho = torch.einsum("CIicBb,BCGH->IicbGH", rho, u.conj())
    return torch.einsum("IicbGH,bcgh->GHIghi", rho, u)


def _surroundings(
    u: torch.Tensor, w: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    left = torch.einsum("aBX,abx->BXbx", w, w.conj())
    right = torch.einsum("EfZ,efz->EZez", w, w.conj())
    inner = torch.einsum("deij,cdy->eijcy", u, w.conj())
    return left, right, inner, inner.conj()


def _mirror(x: torch.Tensor) -> torch.Tensor:
    return x.permute(2, 1, 0, 5, 4, 3)


def _mirrored(u: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return u.permute(1, 0, 3, 2), w.transpose(0, 1)


def _disentangle(psi: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Apply a matrix to the sites ``2j+1``, ``2j+2``, for all ``j``; the last pair wraps around."""
    n_sites, shape = psi.ndim, psi.shape
    moved = psi.permute(*range(1, n_sites), 0)
    moved = _on_every_group(moved, matrix, n_sites // 2).reshape(shape)
    return moved.permute(n_sites - 1, *range(n_sites - 1))


def _on_every_group(psi: torch.Tensor, matrix: torch.Tensor, n_groups: int) -> torch.Tensor:
    """Apply a matrix to each of the groups of neighbouring axes; returns any shape, same order."""
    for _ in range(n_groups):
        # Each pass moves the first group to the end: after n_groups passes the order is restored.
        psi = psi.reshape(matrix.shape[1], -1).mT @ matrix.mT
    return psi


def _check_pairs(tensors: torch.Tensor) -> tuple[int, int]:
    """Return the number of pairs, and the width ``2 d^2`` of one."""
    if not tensors.dtype.is_complex:
        raise ValueError(f"tensors must be complex, got {tensors.dtype}")
    square = tensors.ndim == 3 and tensors.shape[1] == tensors.shape[2]  # noqa: PLR2004  (axes)
    if not square or tensors.shape[0] % 2:
        raise ValueError(
            f"tensors must have shape [n_sites, d, d], n_sites even, got {list(tensors.shape)}"
        )
    return tensors.shape[0] // 2, 2 * tensors.shape[1] ** 2


def _check_layer(
    tensors: torch.Tensor, disentanglers: torch.Tensor, isometries: torch.Tensor
) -> None:
    n_pairs, width = _check_pairs(tensors)
    if disentanglers.shape != (n_pairs, width, width):
        raise ValueError(
            f"disentanglers must have shape [{n_pairs}, {width}, {width}], "
            f"got {list(disentanglers.shape)}"
        )
    _check_alike("disentanglers", disentanglers, "tensors", tensors)
    _check_maps(disentanglers, isometries)


def _check_maps(disentanglers: torch.Tensor, isometries: torch.Tensor) -> None:
    shape = disentanglers.shape
    if not disentanglers.dtype.is_complex:
        raise ValueError(f"disentanglers must be complex, got {disentanglers.dtype}")
    if len(shape) != 3 or shape[1] != shape[2]:  # noqa: PLR2004  (axes)
        raise ValueError(
            f"disentanglers must have shape [n_pairs, width, width], got {list(shape)}"
        )
    if isometries.ndim != 3 or isometries.shape[:2] != shape[:2]:  # noqa: PLR2004  (axes)
        raise ValueError(
            f"isometries must have shape [{shape[0]}, {shape[1]}, bond], "
            f"got {list(isometries.shape)}"
        )
    _check_alike("isometries", isometries, "disentanglers", disentanglers)


def _check_tensors(disentangler: torch.Tensor, isometry: torch.Tensor) -> tuple[int, int]:
    """Return the dimensions of a fine and of a coarse site."""
    if not (disentangler.dtype.is_complex or disentangler.dtype.is_floating_point):
        raise ValueError(f"disentangler must be floating or complex, got {disentangler.dtype}")
    chi = disentangler.shape[0] if disentangler.ndim else 0
    if chi == 0 or disentangler.shape != (chi,) * 4:
        raise ValueError(
            f"disentangler must have shape [chi, chi, chi, chi], got {list(disentangler.shape)}"
        )
    shape = isometry.shape
    if len(shape) != 3 or shape[:2] != (chi, chi) or not 1 <= shape[2] <= chi**2:  # noqa: PLR2004
        raise ValueError(
            f"isometry must have shape [{chi}, {chi}, chi_coarse], chi_coarse from 1 to "
            f"{chi**2}, got {list(shape)}"
        )
    _check_alike("isometry", isometry, "disentangler", disentangler)
    return chi, shape[2]


def _check_cone(cone: str) -> None:
    if cone not in CONES:
        raise ValueError(f"cone must be one of {', '.join(CONES)}, got {cone!r}")


def _check_alike(name: str, one: torch.Tensor, other_name: str, other: torch.Tensor) -> None:
    if one.dtype != other.dtype:
        raise ValueError(
            f"{name} must have the dtype of {other_name}, {other.dtype}, got {one.dtype}"
        )
    if one.device != other.device:
        raise ValueError(
            f"{name} must be on the device of {other_name}, {other.device}, got {one.device}"
        )
