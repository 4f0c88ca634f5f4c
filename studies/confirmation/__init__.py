"""How often ``ivhl gate --confirm`` is wrong: the same code, and 5 % more work.

``python -m studies.confirmation --minutes 60`` measures, ``python -m studies.tables confirmation``
makes the tables of docs/regressions.md from what is stored.
"""
