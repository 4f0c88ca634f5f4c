"""The workloads, measured at every commit: a package per subject, and in it a package per workload.

``__init__`` of a workload declares it and imports no torch; the cell imports ``calls`` and
``reference``. They are separate modules, so that a change of one does not change the others.
"""
