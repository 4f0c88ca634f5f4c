"""A script that nobody made a module."""

import sys

sys.exit(3)
