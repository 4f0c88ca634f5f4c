"""The benchmarks that asv imports in the cell; ``ivhl.measure`` measures the workloads."""

import os
import sys

# The measuring code of the checkout that drives the run precedes that of the commit under test.
if "IVHL_INSTRUMENT" in os.environ:
    sys.path.insert(0, os.environ["IVHL_INSTRUMENT"])
    if "IVHL_PROJECT" in os.environ:
        sys.path.insert(1, os.environ["IVHL_PROJECT"])
