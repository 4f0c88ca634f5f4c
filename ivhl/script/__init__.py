"""Run a plain script in many cells, outside of any project, and compare how it ends in them.

``cells`` makes the environments in the cache of the user, ``running`` runs the script in one of
them, ``observer`` is what counts in its process, ``outcome`` compares.
"""
