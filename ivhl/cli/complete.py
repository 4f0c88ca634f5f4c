"""Complete the values of options in the shell, from the matrix, the declarations and the records.

A completion that fails completes nothing: an error would be printed into the line that is typed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    Complete = Callable[[Any], list[str]]


def complete_from(kind: str) -> Complete:
    """Return what completes a kind of name; the shell is given those that begin as was typed."""

    def complete(ctx: Any) -> list[str]:  # noqa: ANN401  (click's)
        try:
            return sorted(_values(kind, ctx.params.get("results")))
        except Exception:  # noqa: BLE001  (see the module)
            return []

    return complete


complete_cases = complete_from("case")
complete_cells = complete_from("cell")


def _values(kind: str, results: Path | None) -> Collection[str]:
    # Imported here: they take longer than a help text may.
    from ivhl.matrix.project import MATRIX, find_root  # noqa: PLC0415
    from ivhl.matrix.spec import load_matrix  # noqa: PLC0415
    from ivhl.tracker.store.index import open_index  # noqa: PLC0415
    from ivhl.tracker.store.records import case_name  # noqa: PLC0415
    from ivhl.tracker.wording import STATUSES  # noqa: PLC0415

    root = find_root()
    if kind == "status":
        return STATUSES
    if kind in {"python", "torch", "cell"}:
        matrix = load_matrix(root / MATRIX)
        if kind == "cell":
            return [cell.id for cell in matrix.cells(tier="extended")]
        return matrix.pythons if kind == "python" else matrix.every_release
    cases = {entry.case for entry in open_index(results or root / "results").entries}
    if kind == "case":
        return {name for case in cases for name in (case.workload, case_name(case))}
    return {getattr(case, kind) for case in cases}
