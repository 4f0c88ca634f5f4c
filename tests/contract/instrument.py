"""Detect changes of measuring code that can change a number, and store the reason for each.

``nox -s instrument`` runs it; the reasons are in ``instrument.json``.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ivhl.instrument import INSTRUMENT
from ivhl.measure.harness import harness
from ivhl.measure.syntax import syntax_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "ivhl"
STORED: Final = Path(__file__).with_name("instrument.json")
VERSIONS: Final = PACKAGE / "instrument.py"

# Files, and names in files, of the measuring code that cannot change a number.
LEFT_OUT: Final = {
    "errors.py": "exceptions and their texts",
    "instrument.py": "the version itself",
    "machine/compiler.py": "describes the machine",
    "machine/cpu.py": "describes the machine before the first child starts",
    "machine/disk.py": "describes the machine",
    "machine/gpu.py": "describes GPUs before the first child starts",
    "machine/identity.py": "says where it ran",
    "machine/memory.py:PROCESS_BYTES": "describes the machine",
    "machine/memory.py:_memory": "describes the machine",
    "machine/memory.py:_swap": "describes the machine",
    "machine/memory.py:observe_memory": "describes the machine",
    "machine/observation.py": "describes the machine",
    "machine/program.py": "describes the machine",
    "machine/stability.py": "describes the machine before the first child starts",
    "measure/__main__.py": "reads arguments; those that matter are in the record",
    "measure/alone.py": "waits before anything is measured, and keeps others away",
    "measure/case.py:sources_of": "tells sources apart, after a case has run",
    "measure/failures.py": "gives a failure its class, and never decides whether there is one",
    "measure/contents.py": "says what is installed",
    "measure/earlier.py": "decides whether and in which order to measure, not how",
    "measure/launcher.py:Stage": "a type",
    "measure/reduction.py": "writes a script for `ivhl blame`, and makes no record",
    "measure/rehearsal.py": "prints what a case does, and makes no record",
    "measure/outcome.py:failed_everywhere": "makes records without numbers",
    "measure/outcome.py:installed_packages": "says what is installed",
    "measure/run.py:repeat_command": "a text",
    "measure/run.py:this_cell": "says where it ran",
    "measure/runner.py:CaseEvent": "a type",
    "measure/harness.py": "says what is copied into a cell",
    "measure/imports.py:gil_is_on": "says how it ran, before anything is measured",
    "measure/stages.py": "asks which stage shows a symptom, and makes no record",
    "measure/settings.py": "hands on what was asked for, which is in the record",
    "measure/suite.py": "hands numbers of finished records to asv",
    "measure/sources.py": "tells sources apart, after a case has run",
    "measure/syntax.py": "tells sources apart, after a case has run",
    "measure/wheels.py": "says what is installed",
    "records/age.py": "decides which record is newer",
    "records/answers.py": "decides whether and in which order to measure, not how",
    "records/bounds.py": "says what cannot be a record, where records are read",
    "records/lines.py": "says what cannot be a file of records",
    "records/identity.py": "tells cases apart, once they are measured",
    "records/reader.py": "says what cannot be a record",
    "records/files.py:replaced_whole": "replaces files whole; records are appended",
    "records/files.py:write_whole": "replaces files whole; records are appended",
    "records/record.py:Cell": "says where it ran",
    "records/record.py:Conditions": "says how it ran",
    "records/record.py:FAILURE_CLASSES": "words",
    "records/record.py:Failure": "says why there is no number",
    "records/record.py:FailureClass": "words",
    "records/record.py:Level": "words",
    "records/record.py:Machine": "says where it ran",
    "records/record.py:Phase": "words",
    "records/record.py:RecordedObservation": "describes the machine",
    "records/record.py:SCHEMA": "a name",
    "records/record.py:Wheel": "says what is installed",
    "records/files.py:record_file": "where a record goes",
    "workload.py:Cost": "refuses a case before it is measured",
    "workload.py:_mistakes": "refuses a declaration",
    "workload.py:check_memory": "refuses a case before it is measured",
    "workload.py:fits": "refuses a case before it is measured",
    "workload.py:needs_of": "a text",
    "workload.py:load_workloads": "refuses a declaration",
}


def digests(package: Path = PACKAGE) -> dict[str, str]:
    """Return a digest for each file of measuring code, without the parts in ``LEFT_OUT``."""
    found = {}
    for part in (Path("__init__.py"), *harness().values()):
        place = package / part.name
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            name = path.relative_to(package).as_posix()
            if name not in LEFT_OUT:
                parts = (entry.partition(":") for entry in LEFT_OUT)
                without = {inside for file, _, inside in parts if file == name}
                source = path.read_bytes()
                found[name] = syntax_digest(source, annotations=False, without=without)[:16]
    return found


def load() -> dict[str, Any]:
    """Return the stored version, digests of files and reasons."""
    data: dict[str, Any] = json.loads(STORED.read_text(encoding="utf-8"))
    return data


def changed(was: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the files that are new, deleted or have another digest."""
    return sorted(name for name in {*was, *now} if was.get(name) != now.get(name))


def complaint(files: Sequence[str]) -> str:
    """Return the error for changed files, with the next step."""
    return (
        f"{', '.join(f'ivhl/{name}' for name in files)}: this may change numbers: raise the version "
        "in ivhl/instrument.py, or say why not\n"
        'next: nox -s instrument -- --raise "Which numbers change, and why."\n'
        '  or: nox -s instrument -- --unchanged "Why no number changes."'
    )


def raise_version(source: str, line: str) -> str:
    """Return ``ivhl/instrument.py`` with the next version and its line in the history."""
    before, number, after = source.partition(f"\nINSTRUMENT: Final = {INSTRUMENT}\n")
    history, closing, rest = after.partition("\n    }\n)\n")
    if not (number and closing):
        raise SystemExit(f"{VERSIONS}: INSTRUMENT or the end of HISTORY was not found; edit it")
    texts = [json.dumps(part, ensure_ascii=False) for part in _wrapped(line)]
    entry = f"\n        {INSTRUMENT + 1}: " + "\n        ".join(texts) + ","
    return "".join(
        (before, f"\nINSTRUMENT: Final = {INSTRUMENT + 1}\n", history, entry, closing, rest)
    )


def _wrapped(line: str) -> list[str]:
    parts = textwrap.wrap(line, 78)
    return [f"{part} " for part in parts[:-1]] + parts[-1:]


def write(version: int, files: Mapping[str, str], reasons: Sequence[Mapping[str, Any]]) -> None:
    """Write ``instrument.json``."""
    data = {"version": version, "files": dict(sorted(files.items())), "unchanged": reasons}
    STORED.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Report changes of measuring code, or store the reason for them."""
    parser = argparse.ArgumentParser(prog="nox -s instrument --", description=main.__doc__)
    said = parser.add_mutually_exclusive_group()
    said.add_argument("--raise", dest="line", metavar="LINE", help="numbers may change: how, why")
    said.add_argument("--unchanged", metavar="REASON", help="no number changes: why")
    arguments = parser.parse_args(argv)
    stored, now = load(), digests()
    files = changed(stored["files"], now)
    reasons = stored["unchanged"]
    if arguments.line:
        source = VERSIONS.read_text(encoding="utf-8")
        VERSIONS.write_text(raise_version(source, arguments.line), encoding="utf-8")
        write(INSTRUMENT + 1, now, reasons)
        print(f"version {INSTRUMENT + 1}: commit {VERSIONS.name} and {STORED.name}")
    elif stored["version"] != INSTRUMENT:  # the version was raised by hand
        write(INSTRUMENT, now, reasons)
        print(f"version {INSTRUMENT}: commit {STORED.name}")
    elif not files:
        print(f"version {INSTRUMENT}: nothing that can change a number has changed")
    elif arguments.unchanged:
        reason = {"version": INSTRUMENT, "files": files, "reason": arguments.unchanged}
        write(INSTRUMENT, now, [*reasons, reason])
        print(f"version {INSTRUMENT} still: commit {STORED.name}")
    else:
        print(complaint(files), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
