"""Tables of what was measured on a GPU: from its records, and from what the studies export."""

from __future__ import annotations

import json
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from ivhl.tracker.store.records import device_type
from ivhl.workload import every_case, load_workloads
from studies.roofline import Ceilings, fraction_of_limit
from studies.stored import latest_per_case, load_records
from studies.tables.layout import markdown, once

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ivhl.records.record import Arm, RunRecord

RELEASE: Final = "2.11.0"
LEAST_SHARE: Final = 0.001  # of the limit
# Parts of the study of surgical compilation, by their names in the page.
PARTS: Final = {
    "rope-bfloat16": "RoPE alone",
    "document": "layers",
    "linear": "one linear layer, FP8",
    "fp8": "layers, FP8 linear layers",
}
# Forms that gain nothing and explain nothing.
LEFT_OUT: Final = ("pointwise", "pointwise, FP8", "rotate, eager", "emulated, rounded before")


def operations(root: Path) -> list[str]:
    """Return the fastest variant of each workload beside the limit of the GPU, with its kernels."""
    found = [r for r in load_records(root / "results").records if device_type(r) == "cuda"]
    cases = {case.name: case for case in every_case(load_workloads("benchmarks"), "cuda")}
    ceilings = measured_ceilings(root)
    rows = []
    latest = sorted(latest_per_case(found, ()), key=lambda r: (r.workload, r.variant))
    fastest: dict[str, RunRecord] = {}
    for record in latest:
        fastest[record.workload] = max(
            record, fastest.get(record.workload, record), key=speedup_of
        )
    for record in latest:
        if record is not fastest[record.workload]:
            continue
        case = cases[f"{record.workload}/{record.size}/{record.variant}"]
        share = fraction_of_limit(record, case, ceilings)
        rows.append(
            [
                f"`{record.workload}`",
                record.variant,
                microseconds(record.compiled),
                *speedup_and_kernels(record),
                "-" if share is None else f"{share:.1%}" if share > LEAST_SHARE else "< 0.1%",
            ]
        )
    head = ["workload", "variant", "µs", "speedup", "kernels", "kernel µs", "of the limit"]
    one = latest[0]
    commits = ", ".join(dict.fromkeys(f"{r.commit[:7]}" for r in latest))
    text = (
        f"{one.conditions.device.removeprefix('cuda ')}, Python {one.conditions.python_full}, "
        f"PyTorch {one.conditions.torch_full}, `large`, commits {commits}. Limits, measured "
        f"there: {ceilings.bytes_per_s / 1e12:.2f} TB/s of a copy, "
        f"{ceilings.flops_per_s / 1e12:.1f} Tflop/s of float32 matrix multiplication."
    )
    return [*markdown(head, once(rows)), "", text]


def measured_ceilings(root: Path) -> Ceilings:
    """Return the best of the ceilings that were measured on the GPU."""
    each = _load(root, f"exports/ceilings-cuda-{RELEASE}.json")["ceilings"]
    return Ceilings(**{name: max(one[name] for one in each) for name in each[0]})


def speedup_of(record: RunRecord) -> float:
    """Return the speedup of a record, 0 for a failure."""
    return 0.0 if record.speedup is None else record.speedup.value


def speedup_and_kernels(record: RunRecord) -> tuple[str, str, str]:
    """Return the speedup or the failure class, and the kernels of compiled code."""
    if record.speedup is None or record.kernels is None:
        return record.failure.failure_class if record.failure else "-", "-", "-"
    s, ran = record.speedup, record.kernels
    return (
        f"{s.value:.2f}x [{s.low:.2f}, {s.high:.2f}]",
        f"{ran.compiled}",
        f"{1e6 * ran.compiled_s:.0f}",
    )


def microseconds(arm: Arm | None) -> str:
    """Return the median time of a call."""
    return "-" if arm is None else f"{1e6 * median(arm.samples_s):.0f}"


def batches(root: Path, *, export: str) -> list[str]:
    """Return the microseconds per structure of each way to compute a batch."""
    found = _load(root, f"exports/{export}.json")
    ways = list(dict.fromkeys(row["way"] for row in found["rows"]))
    rows = {(row["batch"], row["way"]): row for row in found["rows"]}
    lines = [
        [str(batch), *(_each(rows[batch, way], way == ways[0]) for way in ways)]
        for batch in dict.fromkeys(row["batch"] for row in found["rows"])
    ]
    return markdown(["batch", *ways], lines)


def _each(row: dict[str, Any], is_first: bool) -> str:  # noqa: FBT001
    text = f"{1e6 * row['seconds']:.0f}"
    return text if is_first else f"{text} ({row['speedup']:.1f}x)"


def surgical(root: Path) -> list[str]:
    """Return times, speedups and errors of the plans at the sizes of the document."""
    export = _load(root, f"exports/surgical-cuda-{RELEASE}.json")
    export |= _load(root, f"exports/surgical-fp8-cuda-{RELEASE}.json")
    export |= _load(root, f"exports/surgical-rope-cuda-{RELEASE}.json")
    rows = []
    for part, name in PARTS.items():
        for row in export[part]:
            if row["form"] in LEFT_OUT:
                continue
            over = "{:.2f}x [{:.2f}, {:.2f}]"
            rows.append(
                [
                    name,
                    row["form"],
                    f"{row['ms']:.2f}",
                    over.format(*row["speedup"]),
                    f"{row['rms']:.1e}",
                ]
            )
    head = ["", "form", "ms", "over eager, bfloat16", "RMS from float64"]
    return markdown(head, once(rows))


def rollout(root: Path) -> list[str]:
    """Return the time of a step of each phase on the GPU."""
    export = _load(root, f"rollout/exports/phases-cuda-{RELEASE}.json")
    rows = []
    for row in export["rows"]:
        ratios = (
            "-"
            if found is None
            else f"{found['value']:.2f}x [{found['low']:.2f}, {found['high']:.2f}]"
            for found in (row["speedup"], row["by_hand"])
        )
        rows.append([row["name"], f"{1e3 * row['seconds']:.2f}", *ratios, f"{row['drift']:.0e}"])
    return markdown(
        ["phase", "ms of a step and realisation", "speedup", "over by hand", "drift"], rows
    )


def _load(root: Path, name: str) -> Any:  # noqa: ANN401  (JSON)
    return json.loads((root / "studies" / name).read_text(encoding="utf-8"))


FROM_GPU: Final[Mapping[str, Callable[[Path], list[str]]]] = {
    "gpu-operations": operations,
    "gpu-batches": partial(batches, export=f"throughput-cuda-{RELEASE}"),
    "gpu-surgical": surgical,
    "gpu-rollout": rollout,
}
