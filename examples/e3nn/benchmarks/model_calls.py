"""The functions that model.py names. Imported in the cells only."""

import e3nn
import torch
from e3nn import o3

# Plain code: TorchScript cannot be compiled by torch.compile.
e3nn.set_optimization_defaults(jit_mode="eager")


class Convolution(torch.nn.Module):
    """Tensor product of the features of edges with spherical harmonics, as in force fields."""

    def __init__(self):
        super().__init__()
        features = o3.Irreps("16x0e + 16x1o + 8x2e")
        self.harmonics = o3.SphericalHarmonics(
            o3.Irreps.spherical_harmonics(2), normalize=True, normalization="component"
        )
        self.product = o3.FullyConnectedTensorProduct(
            features, self.harmonics.irreps_out, features
        )

    def forward(self, features, vectors):
        return self.product(features, self.harmonics(vectors))


def make_model(size):
    """Return the model. ivhl seeds PyTorch before, and puts the model back before each call."""
    del size
    return Convolution()


def make_inputs(size, generator):
    """Return a tuple of what the model is called with, drawn from the generator alone."""
    features = torch.randn(size, 104, dtype=torch.float64, generator=generator)
    return features, torch.randn(size, 3, dtype=torch.float64, generator=generator)
