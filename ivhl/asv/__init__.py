"""What makes asv use our cells, keep our failures and publish our pages.

Named in ``asv.conf.json`` as ``".ivhl.asv"``: asv imports only names with a leading dot as
ordinary modules. Importing registers the classes, since asv looks for subclasses of its own.
"""

import os
from importlib.metadata import version

from ivhl.asv import capture, environment, publisher
from ivhl.errors import SpecError
from ivhl.measure.process import die_with

# What we wrap was read in this release; tests/contract/test_asv.py holds it.
SUPPORTED_ASV = "0.6.6"

if version("asv") != SUPPORTED_ASV:
    raise SpecError(
        f"asv {version('asv')} is installed, and ivhl wraps internals of asv {SUPPORTED_ASV}",
        hint=f"python -m pip install asv=={SUPPORTED_ASV}",
    )

capture.install()
# Once `ivhl bench` was killed, perhaps while asv started, nobody waits for asv, which has the locks.
if bench := os.environ.pop("IVHL_BENCH", ""):
    die_with(int(bench))

__all__ = ["environment", "publisher"]
