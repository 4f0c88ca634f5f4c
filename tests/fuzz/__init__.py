"""Attack what reads files of others, with generated ones: ``python -m tests.fuzz``."""
