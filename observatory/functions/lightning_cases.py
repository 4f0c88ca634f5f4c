"""The training step of a LightningModule, without a Trainer."""

import torch
from pytorch_lightning import LightningModule


class Classifier(LightningModule):
    """A classifier of vectors."""

    def __init__(self):
        super().__init__()
        self.save_hyperparameters()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
        )

    def training_step(self, batch, batch_idx):
        vectors, labels = batch
        # No self.log: without a Trainer it warns, and the graph breaks at the warning alone.
        return torch.nn.functional.cross_entropy(self.layers(vectors), labels)

    def forward(self, vectors, labels):
        return self.training_step((vectors, labels), 0)
