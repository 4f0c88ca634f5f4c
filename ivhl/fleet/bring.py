"""Import records of other machines into the results."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ivhl.asv.files import write_machine
from ivhl.bench.checks import check_room
from ivhl.fleet.check import Offered, load_known, read_line, refusal
from ivhl.fleet.merge import FullError, merge_records, remove_unfinished
from ivhl.fleet.sources import Refused, read_sources
from ivhl.matrix.project import load_project
from ivhl.measure.alone import only_run_here, only_writer
from ivhl.records.files import record_file
from ivhl.tracker.store.index import open_index
from ivhl.tracker.store.provenance import digest_of, keep_provenance, load_provenance
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


def import_records(
    root: Path,
    sources: Sequence[Path],
    results: Path,
    attested: Sequence[Attested] = (),
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
        f"an import takes {MOST_NEW_MACHINES} new machines, the first ones by name",
        f"if they are yours, import the same files again: it takes the next {MOST_NEW_MACHINES}",
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
