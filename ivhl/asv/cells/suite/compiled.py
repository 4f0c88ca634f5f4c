"""One asv parameter per case, one ``track_`` per metric. No torch here: asv imports this often."""

from __future__ import annotations

from typing import Any

from ivhl.measure.suite import Values, case_names, measure_cell, value


class Compiled:
    """Every case of every workload, compiled against eager."""

    params = case_names()
    param_names = ("case",)
    version = "1"

    def setup_cache(self) -> Values:
        """Measure all cases; each one in processes and under a deadline of its own."""
        return measure_cell()

    setup_cache.timeout = 24 * 3600  # type: ignore[attr-defined]  # asv reads it

    def track_relative_time(self, cell: Values, case: str) -> Any:  # noqa: ANN401
        """Compiled over eager: lower is better, which is what asv's step detection expects."""
        return value(cell, case, "relative")

    track_relative_time.unit = "compiled/eager"  # type: ignore[attr-defined]

    def track_speedup(self, cell: Values, case: str) -> Any:  # noqa: ANN401
        """Eager over compiled, for reading; asv detects no regression on it (asv.conf.json)."""
        return value(cell, case, "speedup")

    track_speedup.unit = "x"  # type: ignore[attr-defined]

    def track_failed(self, cell: Values, case: str) -> Any:  # noqa: ANN401
        """1 where the case failed, so that a break of compatibility is a regression like any."""
        return value(cell, case, "failed")

    track_failed.unit = "failed"  # type: ignore[attr-defined]
    # ivhl.asv.capture gives this value when not even the cell could be made.
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
        """Seconds of the first call, with an empty cache."""
        return value(cell, case, "compile_s")

    track_compile_time.unit = "seconds"  # type: ignore[attr-defined]

    def track_peak_memory(self, cell: Values, case: str) -> Any:  # noqa: ANN401
        """Bytes that one compiled call holds beyond its inputs."""
        return value(cell, case, "compiled_peak")

    track_peak_memory.unit = "bytes"  # type: ignore[attr-defined]
