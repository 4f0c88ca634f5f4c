"""One asv parameter per case, one ``track_`` method per metric.

Does not import torch, because asv imports this module often.
"""

from __future__ import annotations

from typing import Any

from ivhl.measure.suite import Values, case_names, measure_cell, value


class Compiled:
    """Compares compiled with eager in every case of every workload."""

    params = case_names()
    param_names = ("case",)
    version = "1"

    def setup_cache(self) -> Values:
        """Measure all cases, each in its own processes and with its own time limit."""
        return measure_cell()

    setup_cache.timeout = 24 * 3600  # type: ignore[attr-defined]  # asv reads it

    def track_relative_time(self, cell: Values, case: str) -> Any:  # noqa: ANN401
        """Compiled over eager: lower is better, as asv's step detection expects."""
        return value(cell, case, "relative")

    track_relative_time.unit = "compiled/eager"  # type: ignore[attr-defined]

    def track_speedup(self, cell: Values, case: str) -> Any:  # noqa: ANN401
        """Eager over compiled; asv.conf.json excludes it from asv's regression detection."""
        return value(cell, case, "speedup")

    track_speedup.unit = "x"  # type: ignore[attr-defined]

    def track_failed(self, cell: Values, case: str) -> Any:  # noqa: ANN401
        """1 if the case failed, so that asv reports a new failure as a regression."""
        return value(cell, case, "failed")

    track_failed.unit = "failed"  # type: ignore[attr-defined]
    # ivhl.asv.capture uses this value if the cell could not be made.
    track_failed.on_failure = 1  # type: ignore[attr-defined]

    def track_eager_time(self, cell: Values, case: str) -> Any:  # noqa: ANN401
        """Seconds per eager call."""
        return value(cell, case, "eager_s")

    track_eager_time.unit = "seconds"  # type: ignore[attr-defined]

    def track_compiled_time(self, cell: Values, case: str) -> Any:  # noqa: ANN401
        """Seconds per compiled call."""
        return value(cell, case, "compiled_s")

    track_compiled_time.unit = "seconds"  # type: ignore[attr-defined]

    def track_compile_time(self, cell: Values, case: str) -> Any:  # noqa: ANN401
        """Seconds of the first call with an empty cache."""
        return value(cell, case, "compile_s")

    track_compile_time.unit = "seconds"  # type: ignore[attr-defined]

    def track_peak_memory(self, cell: Values, case: str) -> Any:  # noqa: ANN401
        """Bytes that one compiled call holds beyond its inputs."""
        return value(cell, case, "compiled_peak")

    track_peak_memory.unit = "bytes"  # type: ignore[attr-defined]
