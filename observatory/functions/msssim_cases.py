"""Structural similarity of pytorch-msssim."""

from pytorch_msssim import ssim


def similarity(x, y):
    """Return the similarity of images (batch, 3, height, width), whose values are made positive."""
    return ssim(x.sigmoid(), y.sigmoid(), data_range=1.0, size_average=False)
