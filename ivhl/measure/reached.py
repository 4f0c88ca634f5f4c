"""``python -m ivhl.measure.reached``: print the hashes of what cases reach, as JSON.

Where two commits are measured side by side, neither is installed: a process for each sees its own.
"""

from __future__ import annotations

import json
import sys

from ivhl.measure.sources import reached_sources
from ivhl.workload import load_workloads, named_cases


def main() -> None:
    """Print case name to both hashes; to ``null`` where they cannot be told."""
    asked = json.loads(sys.argv[1])
    workloads, project = asked["workloads"], asked["project"]
    found: dict[str, object] = {}
    for case in named_cases(load_workloads(workloads), asked["cases"], asked["device"]):
        try:
            found[case.name] = reached_sources(case, workloads, project, ran=False)
        except Exception:  # noqa: BLE001  (the process of the case will report what is wrong)
            found[case.name] = None
    print(json.dumps(found))


if __name__ == "__main__":
    main()
