"""Potential, energy and time evolution of a condensate on a grid of spacing 1.

The equation is ``i dphi/dt = -L phi + m2 phi + lam |phi|^(rank-2) phi`` on a periodic grid of one to
three axes, where ``L`` is the Laplacian of three points per axis; rank 4 is the Gross-Pitaevskii
equation. It conserves ``energy``, but not ``potential``, whose stencil, boundary and weights differ.
"""
