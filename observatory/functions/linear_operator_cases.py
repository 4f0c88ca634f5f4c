"""A solve of linear_operator, which keeps the structure of the matrix."""

from linear_operator import to_linear_operator
from linear_operator.operators import RootLinearOperator


def solve(root, right):
    """Return the solution for root root^T + I, and the determinant's logarithm."""
    matrix = RootLinearOperator(to_linear_operator(root)).add_jitter(1.0)
    return matrix.solve(right), matrix.logdet()
