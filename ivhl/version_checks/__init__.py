"""What the source of a code base says: where it compiles, and which versions it checks for.

Nothing of it is run or imported. Only the command ``version-checks`` uses this.
"""
