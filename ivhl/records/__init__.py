"""Records: what one is, writing and reading them, and which one answers a case."""
