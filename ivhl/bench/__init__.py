"""Measure cells through asv, and the experiments that do so."""
