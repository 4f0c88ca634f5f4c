"""e3nn==0.6.0, measured by ivhl. All code under test comes from PyPI."""
