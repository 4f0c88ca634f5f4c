"""Repeat the benchmark this project began with, by its own protocol and by a corrected one.

``nox -s founding`` runs it in the cells, with ``envs/founding/`` installed on top. docs/founding.md
has the results.
"""
