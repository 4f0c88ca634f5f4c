"""What the gate and the list of regressions say of changes whose truth is known.

``python -m studies.planted --export FILE`` writes a small project with a commit for each change,
measures each commit against the one before as a pull request would be, and keeps what was said and
how long it took. docs/regressions.md has the table.
"""
