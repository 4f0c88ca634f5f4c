"""Hyperbolic distances of geoopt."""

import geoopt


def distances(x, y):
    """Return the distances of points of the Poincare ball that tangents at its centre name."""
    ball = geoopt.PoincareBall()
    x, y = ball.expmap0(0.1 * x), ball.expmap0(0.1 * y)
    return ball.dist(x, y), ball.mobius_add(x, y)
