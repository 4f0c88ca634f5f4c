"""Keep the tables of the docs equal to the committed records.

``python -m studies.tables`` writes every block of the pages anew, ``--check`` names the stale ones,
and ``python -m studies.tables NAME`` prints a table that no command of ``ivhl`` prints.
"""
