"""The benchmark this project began with, run again as it was and as it should have been.

``nox -s founding`` runs it in the cells, with ``envs/founding/`` on top. docs/founding.md tells what
came out.
"""
