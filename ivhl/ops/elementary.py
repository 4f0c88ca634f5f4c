"""Elementary functions as short polynomials, for real arithmetic in float32.

Angles are in turns of 2 pi radians: range reduction is then exact, and sine and cosine share it. A
library function spends most of its time on arguments that do not occur here.

The coefficients are literals inside the functions because, with ``dynamic=True``, Dynamo turns
every float of a module into an input of the graph, and every literal into a constant.
"""

from __future__ import annotations

import torch


def cos_sin_of_turns(turns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return cosine and sine of ``2 pi turns``, each without its sign, and the sign that they share.

    Args:
        turns: Angles in turns, any shape, float32.

    Returns:
        Sign, cosine and sine, each with an absolute error below 2e-7.
    """
    half_turns = (turns + turns).round()
    rest = turns - 0.5 * half_turns  # exact, in [-1/4, 1/4]
    sign = 1.0 - 2.0 * half_turns + 4.0 * (0.5 * half_turns).floor()  # -1 where half_turns is odd
    square = rest * rest
    # Exact at Chebyshev points; elsewhere the error is up to 2e-10 and 7e-9.
    cos = (
        0.9999999997791541,
        -19.73920854771579,
        64.9393464762116,
        -85.45356476105549,
        60.14388956138161,
        -24.981434474478363,
    )
    sin = (
        6.283185280154406,
        -41.341680613346526,
        81.60247636892599,
        -76.58117264431282,
        39.75982708575151,
    )
    return sign, _polynomial(cos, square), rest * _polynomial(sin, square)


def turns_of(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return ``atan2(y, x) / (2 pi)``, and 0 at the origin.

    Args:
        y: Second coordinate, any shape, float32.
        x: First coordinate, shape of ``y``.

    Returns:
        Angle in turns, in [-1/2, 1/2], with an absolute error below 1e-7. A negative zero counts
        as zero. The gradient, undefined at the origin, is a finite number there.
    """
    steep = y.abs() > x.abs()
    longer = torch.where(steep, y, x)
    shorter = torch.where(steep, x, y)
    # The ratio keeps the signs, so that the gradient is right on the axes and diagonals too.
    ratio = shorter / torch.where(longer == 0.0, 1.0, longer)
    # Exact at Chebyshev points of [0, 1]; elsewhere the relative error is up to 2e-8.
    arctan = (
        0.1591549401934699,
        -0.05305117560546629,
        0.031818052550955475,
        -0.022596496999642925,
        0.016899661745105606,
        -0.011867953055845464,
        0.006706411085461294,
        -0.002503706059383881,
        0.0004402676934223345,
    )
    turns = ratio * _polynomial(arctan, ratio * ratio)
    quarter = torch.where(y < 0.0, -0.25, 0.25)
    return torch.where(
        steep, quarter - turns, turns + torch.where(x < 0.0, quarter + quarter, 0.0)
    )


def tanh(x: torch.Tensor) -> torch.Tensor:
    """Return tanh of non-negative numbers.

    Args:
        x: At least 0, any shape, float32.

    Returns:
        ``tanh(x)``, with a relative error below 5e-7.
    """
    x = x.clamp(max=9.0)  # 1 - tanh(9) is below the rounding of float32
    square = x * x
    # Exact at Chebyshev points of [-9, 9]; elsewhere the relative error is up to 2e-8.
    above = (
        0.9999999792954202,
        0.14025362753702925,
        0.004328735146138873,
        3.9864114602085014e-05,
        9.833164131107409e-08,
        2.9541697900700696e-11,
    )
    below = (
        1.0,
        0.4735868890985588,
        0.02885776244326546,
        0.0004824192649712081,
        2.387158661637245e-06,
        2.498265710188775e-09,
    )
    return x * _polynomial(above, square) / _polynomial(below, square)


def _polynomial(coefficients: tuple[float, ...], x: torch.Tensor) -> torch.Tensor:
    value = coefficients[-1] * x + coefficients[-2]
    for coefficient in coefficients[-3::-1]:
        value = value * x + coefficient
    return value
