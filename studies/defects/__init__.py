"""Three defects of releases, as cases for ``ivhl blame``: ``python -m studies.defects``."""
