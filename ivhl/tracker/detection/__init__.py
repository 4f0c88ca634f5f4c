"""Find levels and changes in series of numbers. Knows nothing of records."""
