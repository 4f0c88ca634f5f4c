"""Measures of image quality of piq, which takes values from 0 to 1."""

import piq


def structural(x, y):
    """Return the structural similarity of images (batch, 3, height, width)."""
    return piq.ssim(x.sigmoid(), y.sigmoid(), downsample=False, reduction="none")


def fidelity(x, y):
    """Return the visual information fidelity of images of at least 41 x 41 pixels."""
    return piq.vif_p(x.sigmoid(), y.sigmoid(), reduction="none")
