"""asv's view of the workloads; everything is measured by ``ivhl.measure``."""
