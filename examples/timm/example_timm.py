"""timm==1.0.31, measured by ivhl. All code under test comes from PyPI."""
