"""A planted commit among many, searched for by ``ivhl bisect``: ``python -m studies.bisection``."""
