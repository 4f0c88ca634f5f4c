"""Resampling of julius."""

from julius import resample_frac


def resample(sound):
    """Return sound (batch, samples) with five samples in place of four."""
    return resample_frac(sound, 4, 5)
