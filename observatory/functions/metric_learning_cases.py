"""A loss of pytorch-metric-learning over the triplets that it finds in a batch."""

from pytorch_metric_learning.losses import TripletMarginLoss


def triplets(embeddings, labels):
    """Return the loss of embeddings (batch, width) with the labels of their classes."""
    return TripletMarginLoss(margin=0.2)(embeddings, labels)
