"""A loss of MONAI for segmentations."""

from monai.losses import DiceLoss


def dice(scores, target):
    """Return Dice's loss of scores (batch, classes, height, width)."""
    return DiceLoss(softmax=True)(scores, target.softmax(1))
