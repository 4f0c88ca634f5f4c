"""Run inside the container: install the project at its commit, measure it and print the records.

Only this file and the instrument are copied into the container, so it may import the standard
library and the instrument only. It prints one line of JSON per event. So the container shares no
folder with the host, and events printed before a crash are kept.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ivhl.workload import Case

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Measure as ``order.json`` beside this file requests."""
    events = os.dup(sys.stdout.fileno())
    # Standard output is for events only; other prints go to standard error.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def send(event: str, **details: Any) -> None:  # noqa: ANN401  (JSON)
        line = json.dumps({"event": event, **details}).encode() + b"\n"
        while line:
            line = line[os.write(events, line) :]

    order = json.loads((HERE / "order.json").read_text(encoding="utf-8"))
    send("cell-building")
    laid: dict[str, str] = {}
    commits = [commit for commit in (order["base"], order["commit"]) if commit]
    for commit in commits:
        target = HERE / "projects" / commit
        if not (failed := install(HERE / "sources" / commit, target)):
            laid[commit] = str(target)
        elif len(commits) == 1 or (commit == commits[-1] and not laid):
            send("cell-failed", commit=commit, **failed)
            return 0
        else:  # only the cases of this commit have failed
            send("build-failed", commit=commit, **failed)
    # As for an asv benchmark in a cell: the instrument first, then the measured commit.
    os.environ["PYTHONPATH"] = "" if order["base"] else laid[order["commit"]]
    sys.path[:] = [str(HERE / "instrument"), *sys.path[1:], *list(laid.values())[::-1]]
    measure(order, laid, send)
    return 0


def install(source: Path, target: Path) -> dict[str, str] | None:
    """Build the project with the cell's backend and install it; return the failure, if any."""
    cell = sys.prefix
    wheels = target.with_name(f"{target.name}-wheels")
    steps = (
        ("build", "--quiet", "--wheel", "--no-build-isolation", "--python", cell, "--out-dir",
         str(wheels), str(source)),
        ("pip", "install", "--quiet", "--python", cell, "--no-deps", "--target", str(target)),
    )  # fmt: skip
    for step in steps:
        found = [str(path) for path in sorted(wheels.glob("*.whl"))] if step[0] == "pip" else []
        done = subprocess.run(
            ["uv", *step, *found, "--offline", "--no-cache", "--no-config"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            output = (done.stdout + done.stderr).strip()
            return {"message": f"uv {step[0]} failed: {output}"[:1500], "output": output[-4000:]}
    return None


def measure(order: dict[str, Any], laid: dict[str, str], send: Any) -> None:  # noqa: ANN401  (a function)
    """Run the cases, and print each record as soon as it is measured.

    Args:
        order: What is requested.
        laid: Commit to the folder that has the project.
        send: Prints an event.
    """
    # ``main`` has only now put the instrument and the project on the path.
    from ivhl.errors import IvhlError  # noqa: PLC0415
    from ivhl.measure.runner import CaseEvent, run_cases, run_in_turns  # noqa: PLC0415
    from ivhl.measure.settings import read_settings  # noqa: PLC0415
    from ivhl.records.record import Cell, RunRecord  # noqa: PLC0415

    settings = read_settings(HERE / "settings.json")
    runs = [
        settings.run_in(
            Cell(**order["cell"]),
            commit,
            image=order["image"],
            project_path=folder if order["base"] else None,
        )
        for commit, folder in laid.items()
    ]
    sent: dict[Path, int] = {}
    for run in runs:
        mine = [line for line in order["records"] if json.loads(line)["commit"] == run.commit]
        run.record_file.parent.mkdir(parents=True, exist_ok=True)
        sent[run.record_file] = run.record_file.write_bytes("".join(mine).encode())

    def report(event: CaseEvent, case: Case, _: RunRecord | None) -> None:
        for path, start in sent.items():
            added = path.read_bytes()[start:]
            sent[path] += len(added)
            for line in added.splitlines():
                told = json.loads(line)
                name = f"{told['workload']}/{told['size']}/{told['variant']}"
                send("case-record", case=name, record=line.decode())
        send(f"case-{event}", case=case.name)

    try:
        cases = settings.cases()
        send("cell-measuring", cases=[case.name for case in cases])
        if order["base"]:
            run_in_turns(runs, cases, report)
        else:
            run_cases(runs[0], cases, report)
    except IvhlError as error:
        send("refused", message=str(error), hint=error.hint)
    else:
        send("cell-measured")


if __name__ == "__main__":
    sys.exit(main())
