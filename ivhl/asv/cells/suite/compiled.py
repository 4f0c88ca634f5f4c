"""A class for each workload, with a ``track_`` method for each metric.

Does not import torch, because asv imports this module often.
"""

from __future__ import annotations

from typing import Any

from ivhl.measure.suite import METRICS, AsvOperation, Values, measure_cell, operations, value

version = "1"


def setup_cache() -> Values:
    """Measure all cases, each in its own processes and with its own time limit."""
    return measure_cell()


setup_cache.timeout = 24 * 3600  # type: ignore[attr-defined]  # asv reads it


def _track(operation: AsvOperation, metric: str) -> Any:  # noqa: ANN401  (asv has no types)
    def track(_: object, cell: Values, size: str, variant: str) -> Any:  # noqa: ANN401
        return value(cell, f"{operation.workload}/{size}/{variant}", METRICS[metric].value)

    track.benchmark_name = operation.benchmark(metric)  # type: ignore[attr-defined]  # as the three below
    track.__doc__, track.unit = METRICS[metric].title, METRICS[metric].unit  # type: ignore[attr-defined]
    return track


for _operation in operations():
    globals()[_operation.name.replace(".", "_")] = type(
        _operation.name,
        (),
        {
            "params": (_operation.sizes, _operation.variants),
            "param_names": ("size", "variant"),
            **{f"track_{metric}": _track(_operation, metric) for metric in METRICS},
        },
    )
