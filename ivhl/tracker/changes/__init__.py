"""Compare runs: pairs of them, and whole histories."""
