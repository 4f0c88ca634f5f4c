"""How often ``ivhl confirm`` is wrong: the same code against itself, and against 5 % more work.

``python -m studies.confirmation --minutes 60`` measures; ``--report`` prints what all stored
comparisons say. docs/regressions.md has the figures.
"""
