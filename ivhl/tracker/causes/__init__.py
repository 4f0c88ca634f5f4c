"""Explain a difference, and recommend a cell."""
