"""Field of straight vortex lines along z, each with a core: the product of their factors.

Around a line of charge ``q`` the phase grows by ``2 pi q``, and the field vanishes at its centre.
The centre has three coordinates: the core is a ball around it, not a tube along the line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from ivhl.compile import get_compiled
from ivhl.ops.elementary import cos_sin_of_turns, tanh, turns_of
from ivhl.ops.points import as_scalar, check_like, check_no_axes, check_points, check_row

if TYPE_CHECKING:
    from collections.abc import Callable


def compute_vortex_field(
    grid_points: torch.Tensor,
    centers: torch.Tensor,
    charges: torch.Tensor,
    core_radius: float | torch.Tensor = 0.1,
) -> torch.Tensor:
    """Return the field of all vortices at every point, by a compiled loop in real arithmetic.

    ``psi(r) = prod_v tanh(|D_v| / a) exp(i q_v theta_v)`` with ``D_v = r - r_v`` and ``theta_v =
    atan2(D_v.y, D_v.x)``. Numbers of points and vortices, charges and core radius may change from
    call to call without a recompile, except that a single vortex is compiled separately.

    The function adds the angles, then takes one cosine and one sine. So integer and fractional
    charges cost the same and have a gradient, and no charge is read back from a GPU, which would
    wait for it. At a centre the distance has gradient 0. On a vortex line the angle is 0, and its
    gradient, undefined there, is a finite number.

    Args:
        grid_points: Points, shape ``[n_points, 3]``, in units of length, float32 or float64.
        centers: Centres ``r_v``, shape ``[n_vortices, 3]``, in units of length.
        charges: Charges ``q_v``, shape ``[n_vortices]``, integers of any dtype, or the dtype of
            ``grid_points``; fractional ones give a branch cut along ``theta = pi``.
        core_radius: ``a``, in units of length: a finite number above 0, or a tensor without axes.

    Returns:
        Field, shape ``[n_points]``, the complex dtype of ``grid_points``, of modulus at most 1.

    Raises:
        ValueError: If a shape, a dtype or a device is wrong, or the radius is a number that is not
            finite and above 0.

    Source:
        Zynerji/iVHL, scripts/compiled_ops.py, ``compute_vortex_field``.
    """
    check_points("grid_points", grid_points)
    if not isinstance(core_radius, torch.Tensor) and core_radius <= 0.0:
        raise ValueError(f"core_radius must be above 0, got {core_radius}")
    core_radius = as_scalar("core_radius", core_radius, grid_points)
    if not charges.dtype.is_complex and not charges.dtype.is_floating_point:
        charges = charges.to(grid_points.dtype)
    inputs = (grid_points, centers, charges, core_radius)
    _check(*inputs)
    if grid_points.shape[0] <= 1 or centers.shape[0] == 0:
        # Dynamo would recompile for sizes 0 and 1, where there is no loop to speed up.
        return torch.complex(*vortex_planes(*inputs))
    # Other strides would recompile.
    return torch.complex(*_compiled_planes(*(x.contiguous() for x in inputs)))


def vortex_field(
    grid_points: torch.Tensor,
    centers: torch.Tensor,
    charges: torch.Tensor,
    core_radius: float | torch.Tensor = 0.1,
) -> torch.Tensor:
    """Return the same field, computed literally from the formula.

    Args:
        grid_points: Points, shape ``[n_points, 3]``, in units of length.
        centers: Centres, shape ``[n_vortices, 3]``, in units of length.
        charges: Charges, shape ``[n_vortices]``, of the dtype of ``grid_points``.
        core_radius: Radius of the cores, in units of length.

    Returns:
        Field, shape ``[n_points]``, the complex dtype of ``grid_points``.

    Raises:
        ValueError: If a shape, a dtype or a device is wrong.
    """
    _check(grid_points, centers, charges, core_radius)
    away = grid_points[:, None, :] - centers  # [n_points, n_vortices, 3]
    theta = torch.atan2(away[..., 1], away[..., 0])
    core = torch.tanh(torch.linalg.vector_norm(away, dim=-1) / core_radius)
    return (core * torch.exp(1j * charges * theta)).prod(dim=1)


def vortex_planes(
    grid_points: torch.Tensor,
    centers: torch.Tensor,
    charges: torch.Tensor,
    core_radius: float | torch.Tensor = 0.1,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return real and imaginary part of the same field, in real arithmetic only.

    The complex product of all factors is a real product of moduli and a sum of angles. Inductor
    fuses both reductions into one loop.

    Args:
        grid_points: Points, shape ``[n_points, 3]``, in units of length.
        centers: Centres, shape ``[n_vortices, 3]``, in units of length.
        charges: Charges, shape ``[n_vortices]``, of the dtype of ``grid_points``.
        core_radius: Radius of the cores; a tensor without axes where values change.

    Returns:
        Two planes, each of shape ``[n_points]`` and the dtype of ``grid_points``.

    Raises:
        ValueError: If a shape, a dtype or a device is wrong.
    """
    _check(grid_points, centers, charges, core_radius)
    x, y, z = grid_points[:, None, :].unbind(dim=-1)  # [n_points, 1]
    center_x, center_y, center_z = centers.unbind(dim=-1)  # [n_vortices]
    dx, dy, dz = x - center_x, y - center_y, z - center_z
    # The square root has an infinite gradient at zero; the clamp makes it 0 there.
    radii = (dx * dx + dy * dy + dz * dz).clamp(min=1e-37).sqrt() / core_radius
    if grid_points.dtype == torch.float32:
        modulus = tanh(radii).prod(dim=1)
        sign, cos, sin = cos_sin_of_turns((charges * turns_of(dy, dx)).sum(dim=1))
        modulus = sign * modulus
    else:
        modulus = radii.tanh().prod(dim=1)
        on_line = (dx == 0.0) & (dy == 0.0)
        angle = (charges * torch.atan2(dy, torch.where(on_line, 1.0, dx))).sum(dim=1)
        cos, sin = angle.cos(), angle.sin()
    return modulus * cos, modulus * sin


def whole_vortex_planes(
    points: torch.Tensor,
    centers: torch.Tensor,
    charges: torch.Tensor,
    core_radius: float | torch.Tensor = 0.1,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the same field for integer charges, without computing an angle.

    ``exp(i q theta)`` of an integer charge is a power of ``(D.x + i D.y) / |D|``: one square and two
    multiplications, chosen by the two bits of the charge. The loop over vortices is unrolled, so
    each number of vortices has its own graph: use it for a small, fixed number of vortices.

    Args:
        points: Points, shape ``[3, n_points]``: coordinates in rows, so that loads are contiguous.
        centers: Centres, shape ``[n_vortices, 3]``, in units of length.
        charges: Charges, shape ``[n_vortices]``: integers from -3 to 3. Not checked: reading
            them would wait for a GPU.
        core_radius: Radius of the cores; a tensor without axes where values change.

    Returns:
        Two planes, each of shape ``[n_points]`` and the dtype of ``points``.
    """
    x, y, z = points.unbind()
    re, im = torch.ones_like(x), torch.zeros_like(x)
    for center, charge in zip(centers.unbind(), charges.unbind(), strict=True):
        center_x, center_y, center_z = center.unbind()
        dx, dy, dz = x - center_x, y - center_y, z - center_z
        square = dx * dx + dy * dy
        radius = (square + dz * dz).clamp(min=1e-37).sqrt() / core_radius
        core = tanh(radius) if points.dtype == torch.float32 else radius.tanh()
        # On the line itself the angle is undefined and counts as 0, as in ``turns_of``.
        inverse = torch.rsqrt(square.clamp(min=1e-37))
        cos = torch.where(square == 0.0, 1.0, dx * inverse)
        sin = dy * inverse * charge.sign()
        size = charge.abs()
        odd, twice = (size == 1.0) | (size == 3.0), size >= 2.0  # noqa: PLR2004  (bits of 0 to 3)
        one_re, one_im = torch.where(odd, cos, 1.0), torch.where(odd, sin, 0.0)
        two_re = torch.where(twice, cos * cos - sin * sin, 1.0)
        two_im = torch.where(twice, 2.0 * cos * sin, 0.0)
        turn_re = core * (one_re * two_re - one_im * two_im)
        turn_im = core * (one_re * two_im + one_im * two_re)
        re, im = re * turn_re - im * turn_im, re * turn_im + im * turn_re
    return re, im


def make_vortex_field(
    compiler: Callable[..., Callable[..., tuple[torch.Tensor, torch.Tensor]]],
) -> Callable[..., torch.Tensor]:
    """Return ``vortex_field`` with its real planes compiled.

    Args:
        compiler: Compiles a function, e.g. ``torch.compile``; the identity leaves it eager.

    Returns:
        A function with the arguments and the result of ``vortex_field``.
    """
    planes = compiler(vortex_planes)

    def field(*inputs: torch.Tensor) -> torch.Tensor:
        # Inductor has no code for complex numbers, so the complex tensor is made outside the graph.
        return torch.complex(*planes(*inputs))

    return field


_compiled_planes: Final[Callable[..., tuple[torch.Tensor, torch.Tensor]]] = get_compiled(
    vortex_planes, dynamic=True, fullgraph=True
)


def _check(
    grid_points: torch.Tensor,
    centers: torch.Tensor,
    charges: torch.Tensor,
    core_radius: float | torch.Tensor,
) -> None:
    check_points("grid_points", grid_points)
    check_points("centers", centers)
    check_row("charges", charges, n=centers.shape[0], per="vortex")
    check_like(grid_points, (("centers", centers), ("charges", charges)))
    if isinstance(core_radius, torch.Tensor):
        check_no_axes("core_radius", core_radius)
        check_like(grid_points, (("core_radius", core_radius),))
