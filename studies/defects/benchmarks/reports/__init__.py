"""Public reports of the compiler as workloads; ``calls.py`` has what each of them does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ivhl.workload import Variant, Workload

from .listed import REPORTS

if TYPE_CHECKING:
    from .listed import PublicReport

CALLS = "benchmarks.reports.calls"


def _workload(report: PublicReport) -> Workload:
    return Workload(
        name=f"reports.{report.name}",
        version=1,
        title=f"Report {report.number}",
        sizes={"small": report.shapes},
        default_size="small",
        make_inputs=f"{CALLS}:{report.inputs}",
        make_model=f"{CALLS}:make_{report.name}" if report.model else None,
        eager="" if report.model else f"{CALLS}:{report.name}",
        variants=(Variant(name="compiled", dynamic=report.dynamic),),
        source=f"https://github.com/pytorch/pytorch/issues/{report.number}",
    )


WORKLOADS: Final = tuple(map(_workload, REPORTS))
