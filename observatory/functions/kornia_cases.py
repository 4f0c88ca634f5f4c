"""Geometry of kornia."""

import torch
from kornia.filters import gaussian_blur2d
from kornia.geometry import warp_perspective


def warp(images, changes):
    """Return images (batch, 3, height, width) after homographies near the identity, then blurred."""
    near = torch.eye(3, dtype=images.dtype, device=images.device) + 1e-3 * changes
    return gaussian_blur2d(warp_perspective(images, near, (24, 24)), (5, 5), (1.5, 1.5))
