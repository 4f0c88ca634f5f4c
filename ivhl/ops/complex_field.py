"""Intensity, normalisation and phase gradient of a complex field on any grid.

The public functions compile once per number of axes and precision; sizes may change. (Inductor in
2.15 compiles ``normalize_field`` twice: for up to 2048 points, and for more.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import torch

from ivhl.compile import get_compiled
from ivhl.ops.elementary import turns_of
from ivhl.ops.words import fits_words, planes_of_words

if TYPE_CHECKING:
    from collections.abc import Callable

Form = Literal["angle", "current"]

# The last axis of ``torch.view_as_real``: real and imaginary part.
N_PARTS: Final = 2


def compute_intensity(field: torch.Tensor) -> torch.Tensor:
    """Return ``|psi|^2`` at every point.

    Args:
        field: Field, any shape, complex64 or complex128.

    Returns:
        Intensity, shape of ``field``, its real dtype, at least 0.

    Raises:
        ValueError: If ``field`` is not complex64 or complex128.

    Source:
        Zynerji/iVHL, scripts/compiled_ops.py, ``compute_intensity``.
    """
    parts = _parts_of(field).reshape(-1, N_PARTS)
    # Dynamo would recompile for sizes 0 and 1, where there is no loop to speed up.
    call = intensity_of_parts if field.numel() <= 1 else _compiled_intensity
    intensity: torch.Tensor = call(parts)
    return intensity.reshape(field.shape)


def intensity_of_parts(parts: torch.Tensor) -> torch.Tensor:
    """Return the intensity, shape ``[n]``, of real and imaginary parts, shape ``[n, 2]``."""
    re, im = parts.unbind(dim=-1)
    return re * re + im * im


def normalize_field(field: torch.Tensor) -> torch.Tensor:
    """Return ``psi / (||psi|| + 1e-10)``, of norm 1 unless the field is nearly zero.

    Args:
        field: Field, any shape, complex64 or complex128. The norm is the root of the sum of
            ``|psi|^2``, not of an integral: the grid spacing does not enter.

    Returns:
        Field, shape and dtype of ``field``; zero if ``field`` is zero.

    Raises:
        ValueError: If ``field`` is not complex64 or complex128.

    Source:
        Zynerji/iVHL, scripts/compiled_ops.py, ``normalize_field``.
    """
    parts = _parts_of(field).reshape(-1, N_PARTS)
    call = normalize_parts if field.numel() <= 1 else _compiled_normalize
    normalized: torch.Tensor = call(parts)
    return torch.view_as_complex(normalized.contiguous()).reshape(field.shape)


def normalize_parts(parts: torch.Tensor) -> torch.Tensor:
    """Return real and imaginary parts, shape ``[n, 2]``, scaled to norm 1."""
    return parts / (torch.linalg.vector_norm(parts) + 1e-10)


def compute_phase_gradient(
    field: torch.Tensor, *, form: Form = "angle"
) -> tuple[torch.Tensor, ...]:
    """Return the gradient of the phase along every axis, at spacing 1.

    Differences are central inside and one-sided at the boundary, as in ``torch.gradient``.

    * ``angle``, iVHL's definition and the default, takes differences of ``arg psi`` in
      ``(-pi, pi]``. It is exact where the phase is linear and does not cross ``pi``. Where it does
      (the branch cut), the jump of ``2 pi`` counts as a difference: the two points next to the cut
      are wrong by ``pi`` each, with the sign of the jump.
    * ``current`` is ``Im(conj(psi) grad psi) / |psi|^2``, the velocity of the condensate. It has no
      branch cut, because it takes differences of ``psi``. For a plane wave it returns ``sin k``
      instead of ``k``, so it is accurate only for waves much longer than the grid spacing. It is 0
      where ``psi`` is 0.

    Args:
        field: Field, at least one axis of at least two points each, complex64 or complex128.
        form: ``angle`` or ``current``.

    Returns:
        One tensor per axis, each of the shape of ``field`` and its real dtype, in radians per
        spacing.

    Raises:
        ValueError: If ``field`` is not complex64 or complex128, has no axes or one that is too
            short, or ``form`` is unknown.

    Source:
        Zynerji/iVHL, scripts/compiled_ops.py, ``compute_phase_gradient``.
    """
    if form not in _COMPILED:
        raise ValueError(f"form must be one of {', '.join(_COMPILED)}, got {form!r}")
    _check(field)
    _check_axes(field)
    return _COMPILED[form](field)


def phase_gradient(field: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the gradient of the angle along every axis: the naive form.

    Args:
        field: Field, at least one axis of at least two points each, complex.

    Returns:
        One tensor per axis, each of the shape of ``field`` and its real dtype.

    Raises:
        ValueError: If ``field`` is not complex64 or complex128, or an axis is too short.
    """
    _check(field)
    _check_axes(field)
    return tuple(torch.gradient(torch.angle(field)))


def angle_of_words(words: torch.Tensor) -> torch.Tensor:
    """Return the angle of every point, in radians, from -pi to pi.

    Inductor calls the library's atan2 point by point; it vectorises a polynomial.

    Args:
        words: The field as words, see ``ivhl.ops.words``.

    Returns:
        Angles, shape of ``words``, float32, with an absolute error below 1e-6.
    """
    re, im = planes_of_words(words)
    return 6.283185307179586 * turns_of(im, re)  # 2 pi, a literal: see elementary.py


def slopes_of_angle(angle: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the differences of the angle along every axis.

    Args:
        angle: Angles, shape of the field.

    Returns:
        One tensor per axis, each of the shape of ``angle``.
    """
    return tuple(_difference(angle, axis) for axis in range(angle.ndim))


def current_slopes(parts: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the current divided by the density along every axis.

    Args:
        parts: Real and imaginary part of the field, shape ``[..., 2]``.

    Returns:
        One tensor per axis except the last, each of the shape of the field.
    """
    re, im = parts.unbind(dim=-1)
    density = re * re + im * im
    density = torch.where(density == 0.0, 1.0, density)
    return tuple(
        (re * _difference(im, axis) - im * _difference(re, axis)) / density
        for axis in range(re.ndim)
    )


def make_phase_gradient(
    compiler: Callable[..., Callable[..., Any]],
) -> Callable[[torch.Tensor], tuple[torch.Tensor, ...]]:
    """Return ``phase_gradient`` in real arithmetic, compiled.

    Angles and differences are compiled separately: in one graph, releases up to 2.6 compute each
    angle again for every difference that uses it.

    Args:
        compiler: Compiles a function, e.g. ``torch.compile``; the identity leaves it eager.

    Returns:
        A function with the argument and the result of ``phase_gradient``.
    """
    angles, slopes = compiler(angle_of_words), compiler(slopes_of_angle)

    def gradient(field: torch.Tensor) -> tuple[torch.Tensor, ...]:
        field = field.resolve_conj().contiguous()  # other strides would recompile
        angle = angles(field.view(torch.float64)) if fits_words(field) else torch.angle(field)
        return tuple(slopes(angle))

    return gradient


_compiled_intensity: Final[Callable[..., torch.Tensor]] = get_compiled(
    intensity_of_parts, dynamic=True, fullgraph=True
)
_compiled_normalize: Final[Callable[..., torch.Tensor]] = get_compiled(
    normalize_parts, dynamic=True, fullgraph=True
)
_compiled_current: Final[Callable[..., tuple[torch.Tensor, ...]]] = get_compiled(
    current_slopes, dynamic=True, fullgraph=True
)
_COMPILED: Final[dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, ...]]]] = {
    "angle": make_phase_gradient(get_compiled(dynamic=True, fullgraph=True)),
    "current": lambda field: _compiled_current(_parts_of(field)),
}


def _difference(values: torch.Tensor, axis: int) -> torch.Tensor:
    """Return ``torch.gradient`` along one axis, written with slices, for dynamic shapes."""
    n = values.shape[axis]
    inside = 0.5 * (values.narrow(axis, 2, n - 2) - values.narrow(axis, 0, n - 2))
    first = values.narrow(axis, 1, 1) - values.narrow(axis, 0, 1)
    last = values.narrow(axis, n - 1, 1) - values.narrow(axis, n - 2, 1)
    return torch.cat((first, inside, last), dim=axis)


def _parts_of(field: torch.Tensor) -> torch.Tensor:
    """Return real and imaginary part on a new last axis, contiguous to avoid a recompile."""
    _check(field)
    return torch.view_as_real(field.resolve_conj().contiguous())


def _check(field: torch.Tensor) -> None:
    if field.dtype not in (torch.complex64, torch.complex128):
        raise ValueError(f"field must be complex64 or complex128, got {field.dtype}")


def _check_axes(field: torch.Tensor) -> None:
    if field.ndim == 0 or min(field.shape) < 2:  # noqa: PLR2004  (a difference needs two points)
        raise ValueError(
            f"field must have axes of at least 2 points each, got shape {list(field.shape)}"
        )
