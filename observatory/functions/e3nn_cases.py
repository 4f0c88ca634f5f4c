"""A tensor product of e3nn with spherical harmonics, as in force fields."""

import e3nn
import torch
from e3nn import o3

# Plain code: torch.compile does not look into TorchScript.
e3nn.set_optimization_defaults(jit_mode="eager")


class Convolution(torch.nn.Module):
    """Features of edges, times the spherical harmonics of their directions."""

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
