"""x-transformers==2.31.10, measured by ivhl. All code under test comes from PyPI."""
