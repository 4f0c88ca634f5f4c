"""The training step of a LightningModule, without a Trainer."""

import torch
from pytorch_lightning import LightningModule


class Classifier(LightningModule):
    """A classifier that logs its loss."""

    def __init__(self):
        super().__init__()
        self.save_hyperparameters()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
        )

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = torch.nn.functional.cross_entropy(self.layers(images), labels)
        self.log("loss", loss)
        return loss

    def forward(self, images, labels):
        return self.training_step((images, labels), 0)
