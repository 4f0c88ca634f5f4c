"""asv's view of the workloads, imported in the cell; ``ivhl.measure`` measures everything."""

import os
import sys

# The measuring code of the checkout that drives the run, before that of the commit under test.
if "IVHL_INSTRUMENT" in os.environ:
    sys.path.insert(0, os.environ["IVHL_INSTRUMENT"])
