"""Reproducible environment matrix and regression tracker for torch.compile."""

from pkgutil import extend_path

# In a cell, the measuring code (ivhl.measure, ivhl.records, ...) comes from the checkout that
# drives the run; ivhl.ops and ivhl.mlff come from the commit under test
# (docs/adr/0004-one-instrument-many-subjects.md).
__path__ = extend_path(__path__, __name__)
