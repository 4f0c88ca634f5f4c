"""Strang steps with the Fourier transforms of NumPy, SciPy and FFTW.

They differ only in their transforms. The step of the potential is the same: adjacent half steps are
joined, as in our code, every array is allocated once, and the phase factor comes from NumPy's
vectorised sine and cosine of real numbers.
"""

from __future__ import annotations

import importlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.condensate.gp_evolve import LAM, M2, N_STEPS

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    Array = Any  # numpy.ndarray; the tool's type check has no numpy
    Call = Callable[[], Array]


def make_numpy(phi: torch.Tensor, *, dt: float) -> Call:
    """Return the steps with ``numpy.fft``, in complex64.

    Uses ``norm="ortho"``: with any other norm NumPy computes in complex128 and rounds the result.

    Args:
        phi: Condensate, shape ``[n, n, n]``, complex64.
        dt: Time step.
    """
    start = phi.numpy()
    turned, turn = make_turn(start.shape)
    waves_turn = make_dispersion(start.shape, dt, scale=1.0)

    def disperse(field: Array) -> Array:
        waves = np.fft.fftn(field, norm="ortho")
        waves *= waves_turn
        return np.fft.ifftn(waves, norm="ortho")

    return _steps(start, turned, turn, disperse, dt)


def make_scipy(phi: torch.Tensor, *, dt: float) -> Call:
    """Return the steps with ``scipy.fft``, which may overwrite its input, in complex64.

    Args:
        phi: Condensate, shape ``[n, n, n]``, complex64.
        dt: Time step.
    """
    fft: Any = importlib.import_module("scipy.fft")
    start = phi.numpy()
    turned, turn = make_turn(start.shape)
    waves_turn = make_dispersion(start.shape, dt, scale=1.0 / start.size)

    def disperse(field: Array) -> Array:
        waves = fft.fftn(field, overwrite_x=True, workers=1)
        waves *= waves_turn
        return fft.ifftn(waves, norm="forward", overwrite_x=True, workers=1)

    return _steps(start, turned, turn, disperse, dt)


def make_pyfftw(phi: torch.Tensor, *, dt: float) -> Call:
    """Return the steps with FFTW, planned here by measurement (``FFTW_MEASURE``), in complex64.

    Args:
        phi: Condensate, shape ``[n, n, n]``, complex64.
        dt: Time step.
    """
    pyfftw: Any = importlib.import_module("pyfftw")
    start = phi.numpy()
    _, turn = make_turn(start.shape)
    waves_turn = make_dispersion(start.shape, dt, scale=1.0 / start.size)
    field = pyfftw.empty_aligned(start.shape, dtype="complex64")
    waves = pyfftw.empty_aligned(start.shape, dtype="complex64")
    axes = tuple(range(start.ndim))
    options = {"axes": axes, "threads": 1, "flags": ("FFTW_MEASURE",)}
    forward = pyfftw.FFTW(field, waves, direction="FFTW_FORWARD", **options)
    backward = pyfftw.FFTW(waves, field, direction="FFTW_BACKWARD", **options)

    def disperse(_: Array) -> Array:
        forward.execute()
        np.multiply(waves, waves_turn, out=waves)
        backward.execute()
        return field

    return _steps(start, field, turn, disperse, dt)


def make_dispersion(shape: tuple[int, ...], dt: float, *, scale: float) -> Array:
    """Return the phase factor of every wave for a time ``dt``, times a scale, complex64.

    Uses the symbol of the three-point stencil of each axis, ``2 - 2 cos(2 pi k / n)``, in float64.
    The scale can be that of an unnormalised inverse transform.
    """
    axes = [2.0 - 2.0 * np.cos(2.0 * math.pi / n * np.arange(n)) for n in shape]
    symbol = axes[0][:, None, None] + axes[1][:, None] + axes[2]
    return (scale * np.exp(-1j * dt * symbol)).astype(np.complex64)


def make_turn(shape: tuple[int, ...]) -> tuple[Array, Callable[[Array, float, Array], None]]:
    """Return an array for the condensate, and a function that applies the potential to it.

    The function takes a condensate, a time, and the array for the result, which may be the
    condensate. Its interaction has rank 4, as in the workload.
    """
    angle, square = np.empty(shape, np.float32), np.empty(shape, np.float32)
    factor = np.empty(shape, np.complex64)

    def turn(phi: Array, time: float, out: Array) -> None:
        np.multiply(phi.real, phi.real, out=angle)
        np.multiply(phi.imag, phi.imag, out=square)
        np.add(angle, square, out=angle)
        np.multiply(angle, np.float32(-time * LAM), out=angle)
        np.add(angle, np.float32(-time * M2), out=angle)
        np.cos(angle, out=factor.real)
        np.sin(angle, out=factor.imag)
        np.multiply(phi, factor, out=out)

    return np.empty(shape, np.complex64), turn


def _steps(
    start: Array,
    first: Array,
    turn: Callable[[Array, float, Array], None],
    disperse: Callable[[Array], Array],
    dt: float,
) -> Call:
    def call() -> Array:
        turn(start, 0.5 * dt, first)
        phi = first
        for number in range(N_STEPS):
            phi = disperse(phi)
            turn(phi, 0.5 * dt if number == N_STEPS - 1 else dt, phi)
        return phi

    return call
