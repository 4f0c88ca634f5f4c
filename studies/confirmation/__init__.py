"""How often ``ivhl confirm`` is wrong: the same code against itself, and against 5 % more work.

``python -m studies.confirmation --minutes 60`` measures, ``python -m studies.tables confirmation``
makes the tables of docs/regressions.md from what is stored.
"""
