"""Tables for other tools: all records as Parquet, any rows as CSV."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any, Final

from ivhl.errors import SpecError
from ivhl.records.files import replaced_whole
from ivhl.records.text import printable
from ivhl.tracker.store.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ivhl.records.record import RunRecord
    from ivhl.tracker.store.entries import Entry
    from ivhl.tracker.store.index import Index

# Rows that are in memory at a time, with their samples.
_BATCH: Final = 2000
# How a cell begins that a spreadsheet would compute.
_FORMULA: Final = ("=", "+", "-", "@")
_ARMS: Final = ("eager", "eager_again", "formulation_eager", "compiled")


def export_parquet(index: Index, path: Path) -> int:
    """Write all records, replaced ones too, to a file; return their number.

    A column for each field of a record's identity and conditions, each quantity with its standard
    error, facts, and the samples of each arm in seconds as a list.

    Raises:
        SpecError: If pyarrow is not installed, or the path is no place for a file.
        ResultsError: If the file cannot be written.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415  (an extra)
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError as error:
        raise SpecError(
            "Parquet needs pyarrow, which is not installed",
            hint="python -m pip install 'ivhl[parquet]'",
        ) from error
    seconds, number = pa.list_(pa.float64()), pa.float64()
    kinds = {
        **dict.fromkeys(_texts(), pa.string()),
        **dict.fromkeys(("existing", "latest"), pa.bool_()),
        **dict.fromkeys(("workload_version", "threads", "graph_breaks", "recompiles"), pa.int64()),
        **{f"{metric}{end}": number for metric in METRICS for end in ("", "_error")},
        **dict.fromkeys(("calibration_s", "error_rmse"), number),
        **{f"{arm}_samples_s": seconds for arm in _ARMS},
    }
    schema = pa.schema([*kinds.items()])
    if path.exists() and not path.is_file():
        raise SpecError(f"{path}: must be a file or not exist", hint="choose another name")
    with (
        replaced_whole(path) as unfinished,
        pq.ParquetWriter(unfinished, schema, compression="zstd") as writer,
    ):
        for rows in _batches(index):
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    return len(index.entries) + len(index.replaced)


def _texts() -> tuple[str, ...]:
    return (
        *("machine", "device", "python", "torch", "cell", "commit", "workload", "size", "variant"),
        *("dtype", "mode", "engine", "recorded_at", "sources", "benchmark", "lock", "instrument"),
        *("clock", "image", "failure_class", "exception", "message"),
    )


def _batches(index: Index) -> Iterator[list[dict[str, Any]]]:
    for latest, entries in ((True, index.entries), (False, index.replaced)):
        for start in range(0, len(entries), _BATCH):
            part = entries[start : start + _BATCH]
            pairs = zip(part, index.read(part), strict=True)
            yield [{"latest": latest, **_row(entry, record)} for entry, record in pairs]


def _row(entry: Entry, record: RunRecord) -> dict[str, Any]:
    failure, facts = record.failure, record.compile
    arms = ((name, getattr(record, name)) for name in _ARMS)
    rmse = (one.compiled_rmse for one in record.accuracy if one.compiled_rmse is not None)
    return {
        **entry.case._asdict(),
        "commit": entry.commit,
        "python": entry.python,
        "torch": entry.torch,
        "dtype": entry.dtype,
        "mode": record.mode,
        "engine": record.engine,
        "recorded_at": entry.recorded_at,
        "sources": entry.sources,
        "benchmark": entry.benchmark,
        "lock": entry.made.lock,
        "instrument": entry.made.instrument,
        "clock": entry.made.clock,
        "image": entry.made.image,
        "threads": entry.made.threads,
        "failure_class": entry.failure_class,
        "exception": entry.exception,
        "message": None if failure is None else failure.message,
        "graph_breaks": _count(facts, "graph_breaks"),
        "recompiles": _count(facts, "recompiles"),
        **{metric: found.value for metric, found in entry.values.items()},
        **{f"{metric}_error": found.error for metric, found in entry.values.items()},
        "calibration_s": entry.calibration.value if entry.calibration else None,
        "error_rmse": max(rmse, default=None),
        **{f"{name}_samples_s": arm.samples_s for name, arm in arms if arm is not None},
    }


def _count(facts: object, name: str) -> int | None:
    return None if facts is None else sum(one.count for one in getattr(facts, name))


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table as CSV, with a column for each name."""
    names = dict.fromkeys(name for row in rows for name in row)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_plain(row.get(name)) for name in names] for row in rows)
    return text.getvalue()


def _plain(value: object) -> object:
    """Return a value as CSV holds it: a text of a record is never a formula of a spreadsheet."""
    if value is None or isinstance(value, bool | int | float):
        return "" if value is None else value
    text = printable(value if isinstance(value, str) else json.dumps(value))
    return f"'{text}" if text.startswith(_FORMULA) else text
