"""Compute everything that the published pages show; ``ivhl.pages`` only writes it down."""
