"""Import records of other machines into the results.

They are merged into a machine's files: without duplicates, in order of time, atomically.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ivhl.asv.files import write_machine
from ivhl.bench.checks import check_room
from ivhl.errors import ResultsError
from ivhl.fleet.check import Offered, load_known, read_line, refusal
from ivhl.fleet.sources import Refused, read_sources
from ivhl.matrix.project import load_project
from ivhl.measure.alone import only_run_here, only_writer
from ivhl.records.age import recorded_rank
from ivhl.records.files import UNFINISHED, record_file, without_links, write_whole
from ivhl.records.lines import lines_of, read_plain, within_limits
from ivhl.records.reader import read_record
from ivhl.records.record import RunRecord, to_json
from ivhl.tracker.store.index import open_index
from ivhl.tracker.store.kept import digest_of, keep_provenance, load_provenance
from ivhl.tracker.store.records import device_type, is_existing
from ivhl.tracker.wording import counted
from ivhl.workload import load_workloads

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ivhl.fleet.signed import Attested


# Of unreadable lines. A source can consist of them, and each takes memory and a line of output.
_MOST_REFUSED = 1000
# That the results do not have yet. Each has pages of its own, some 50 KB, and a table: of a sender
# who invents names somebody should know before there are thousands.
MOST_NEW_MACHINES = 50


class Batch(NamedTuple):
    """The records of one machine, device, commit and cell."""

    machine: str
    device: str
    commit: str
    cell: str
    existing: bool


@dataclass(frozen=True, slots=True)
class Imported:
    """The outcome of an import.

    Attributes:
        new: Number of new records by batch.
        had: Number of records by batch that were here already, or occurred twice.
        refused: Lines and files that were refused, with the reason.
    """

    new: Counter[Batch]
    had: Counter[Batch]
    refused: tuple[Refused, ...]


def joined(outcomes: Iterable[Imported]) -> Imported:
    """Return the outcome of several imports."""
    every = [*outcomes]
    return Imported(
        sum((one.new for one in every), Counter()),
        sum((one.had for one in every), Counter()),
        tuple(refusal for one in every for refusal in one.refused),
    )


def import_records(
    root: Path, sources: Sequence[Path], results: Path, attested: Sequence[Attested] = ()
) -> Imported:
    """Import the records of the sources into the results.

    Refused records are reported, and all others imported. The resulting files do not depend on the
    order of sources and imports. After an error or a kill, the same call completes the import.

    Args:
        root: Root of the project.
        sources: See ``read_sources``.
        results: Folder of the results.
        attested: Attestations; if there are any, only records of files that one names are taken.

    Raises:
        SpecError: If the project is not valid, or not a git repository.
        ResultsError: If the results cannot be written, or a run is measuring here.
    """
    project = load_project(root)
    offered, refused = _read(sources)
    check_room(results)
    with only_run_here(root), only_writer(results):
        remove_unfinished(results)
        known = load_known(
            root,
            project=project.name,
            workloads=load_workloads(project.workloads),
            ours=(entry.case for entry in open_index(results).entries),
            results=results,
            offered=offered,
        )
        taken: list[Offered] = []
        for offer in offered:
            if why := refusal(offer, known) or _unsigned(offer, attested):
                refused.append(why)
            else:
                taken.append(offer)
        if too_many := _too_many_machines(results, taken):
            taken = [offer for offer in taken if offer.record.machine.name not in too_many]
            refused.append(_of_too_many(too_many))
        new, had, full = _merge(results, taken)
        refused += full.values()
        taken = [offer for offer in taken if _file_of(results, offer) not in full]
        _keep_provenance(results, taken, attested)
        for name in sorted({offer.record.machine.name for offer in taken}):
            write_machine(results, name, known.machines[name])
    return Imported(new, had, tuple(refused))


def _read(sources: Sequence[Path]) -> tuple[list[Offered], list[Refused]]:
    """Return the records of the sources, and the refusals: of very many lines the first ones."""
    offered: list[Offered] = []
    refused: list[Refused] = []
    unnamed = 0
    for found in read_sources([*sources]):
        one = found if isinstance(found, Refused) else read_line(found)
        if not isinstance(one, Refused):
            offered.append(one)
        elif len(refused) < _MOST_REFUSED:
            refused.append(one)
        else:
            unnamed += 1
    if unnamed:
        refused.append(
            Refused(
                counted(unnamed, "more line"),
                f"refused, and only the first {_MOST_REFUSED} are named",
                "check whether these are files of records",
            )
        )
    return offered, refused


def _too_many_machines(results: Path, taken: Iterable[Offered]) -> tuple[str, ...]:
    """Return the names of the new machines that one import does not take: the last ones by name."""
    names = {offer.record.machine.name for offer in taken}
    return tuple(sorted(n for n in names if not (results / n).exists())[MOST_NEW_MACHINES:])


def _of_too_many(names: Sequence[str]) -> Refused:
    return Refused(
        f"{counted(len(names), 'machine')}, {names[0]} to {names[-1]}",
        f"an import takes {MOST_NEW_MACHINES} new machines, in order of their names",
        f"if you trust them, import the same files again: this takes the next {MOST_NEW_MACHINES}",
    )


def _unsigned(offer: Offered, attested: Sequence[Attested]) -> Refused | None:
    if not attested or any(offer.file in one.files for one in attested):
        return None
    return Refused(
        offer.place,
        f"must be in a file that the attestation names (its SHA-256 is {offer.file})",
        "import the files as the workflow uploaded them, or without --attestation",
    )


def _keep_provenance(
    results: Path, taken: Iterable[Offered], attested: Sequence[Attested]
) -> None:
    """Write down who signed which records, once for each of them."""
    known = set(load_provenance(results)) if attested else set()
    for one in attested:
        records = (digest_of(offer.record) for offer in taken if offer.file in one.files)
        new = tuple(dict.fromkeys(digest for digest in records if digest not in known))
        known |= set(new)
        if new:
            keep_provenance(results, replace(one.signer, records=new))


def _file_of(results: Path, offer: Offered) -> Path:
    record = offer.record
    return record_file(results, record.machine.name, record.commit, record.cell.id)


def _merge(
    results: Path, taken: Iterable[Offered]
) -> tuple[Counter[Batch], Counter[Batch], dict[Path, Refused]]:
    """Add the records to their files; return how many were new, and the files that are full."""
    files: dict[tuple[Path, Batch], list[Offered]] = {}
    for offer in taken:
        record = offer.record
        path = _file_of(results, offer)
        batch = Batch(
            record.machine.name,
            device_type(record),
            record.commit,
            record.cell.id,
            is_existing(record),
        )
        files.setdefault((path, batch), []).append(offer)
    new: Counter[Batch] = Counter()
    had: Counter[Batch] = Counter()
    full: dict[Path, Refused] = {}
    for (path, batch), offers in sorted(
        files.items(), key=lambda item: (str(item[0][0]), item[0][1])
    ):
        try:
            added, known = merge_records(path, [offer.record for offer in offers])
        except FullError as error:
            which = f"{counted(len(offers), 'record')} from {offers[0].place}"
            full[path] = Refused(which, str(error), error.hint)
            continue
        new[batch] += added
        had[batch] += known
    return new, had, full


class FullError(ResultsError):
    """A file of records would be larger than any reader takes; it is unchanged."""


def merge_records(path: Path, records: Iterable[RunRecord]) -> tuple[int, int]:
    """Add the records that the file does not have; return how many, and how many it had.

    Lines are sorted by time: the later line of a case counts, and the result must not depend on the
    order of imports. Lines that cannot be read are kept, at the beginning. Without a new record the
    file is not written.

    Raises:
        FullError: If the file would be over a limit; it is then unchanged.
        ResultsError: If it cannot be written; likewise.
    """
    lines: list[tuple[tuple[bool, str], str, bytes]] = []
    here: set[str] = set()
    old = _lines(path)
    for line in old:
        try:
            record = read_record(line)
        except ValueError:
            lines.append(((False, ""), "", line))
        else:
            text = to_json(record)
            here.add(text)
            lines.append((recorded_rank(record), text, line))
    new = had = 0
    for record in records:
        text = to_json(record)
        if text in here:
            had += 1
            continue
        here.add(text)
        new += 1
        lines.append((recorded_rank(record), text, text.encode()))
    if new:
        lines.sort(key=lambda line: line[:2])
        data = b"".join(line + b"\n" for *_, line in lines)
        write_whole(path, _within_limits(path, data), path.parents[2])
    return new, had


def _lines(path: Path) -> list[bytes]:
    try:
        return [line.data for line in lines_of(read_plain(path))] if path.exists() else []
    except ResultsError as error:
        raise ResultsError(
            f"{path}: {error}", hint="check its permissions, or move it elsewhere"
        ) from error


def _within_limits(path: Path, data: bytes) -> bytes:
    try:
        return within_limits(data)
    except ResultsError as error:
        raise FullError(
            f"{path} would be no file of records any more: {error}",
            hint="the file is unchanged; move old records of this commit and cell elsewhere",
        ) from error


def remove_unfinished(results: Path) -> None:
    """Remove the partial files of a killed import."""
    for folder in (results, *results.glob("*/"), *results.glob("*/records/")):
        for path in folder.glob(f"{UNFINISHED}*.part"):
            with suppress(OSError, ResultsError):
                without_links(path, results).unlink()
