"""torchdiffeq==0.2.5, measured by ivhl. All code under test comes from PyPI."""
