"""``ivhl matrix``: list, compare, check and lock the cells."""

from ivhl.cli.matrix import cells as cells
from ivhl.cli.matrix import locks as locks
from ivhl.cli.matrix import releases as releases
