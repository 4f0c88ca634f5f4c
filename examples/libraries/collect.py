"""Put the answers of ivhl and of the plain script beside each other, as ``answers.json``.

``python collect.py FOLDER``: FOLDER has a project for each library, with its ``results`` and, for
each release and Python, what ``plain.py`` printed, as ``plain-PYTHON-RELEASE.json``.
"""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def ours(record):
    """Return what a record answers."""
    compiled, speedup = record["compile"] or {}, record["speedup"] or {}
    frames = {name: compiled.get(f"frames_{name}") for name in ("ok", "total")}
    return {
        "failure": (record["failure"] or {}).get("failure_class"),
        **{name: speedup.get(name) for name in ("low", "high")},
        "speedup": speedup.get("value"),
        "breaks": sum(one["count"] for one in compiled["graph_breaks"]) if compiled else None,
        "frames_eager": frames["total"] - frames["ok"] if compiled else None,
        "recompiles": sum(one["count"] for one in compiled["recompiles"]) if compiled else None,
        "message": (record["failure"] or {}).get("message", "")[:160],
    }


def theirs(answer):
    """Return what the plain script answers."""
    counted = "graphs" in answer
    low, high = answer.get("quartiles", (None, None))
    return {
        "failure": answer.get("failure", [""])[0].partition(":")[0] or None,
        "low": low,
        "high": high,
        "speedup": answer.get("median_ratio"),
        "breaks": answer["breaks"] if counted else None,
        "frames_eager": answer["total"] - answer["ok"] if counted else None,
        "recompiles": answer["recompiles"] if counted else None,
        "message": answer.get("failure", [""])[0][:160],
    }


def main(folder):
    newest = {}
    for path in sorted(Path(folder).glob("*/results/*/records/*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            if record["workload"] == "model.forward":
                library, cell = path.parts[-5], record["cell"]
                key = library, cell["python"], cell["torch"]
                at = record["recorded_at"]
                newest[key] = max(newest.get(key, (at, record)), (at, record), key=lambda x: x[0])
    rows = []
    for (library, python, torch), (_, record) in sorted(newest.items()):
        plain = Path(folder, library, f"plain-{python}-{torch}.json")
        if plain.exists() and (text := plain.read_text(encoding="utf-8")):
            found = {"library": library, "python": python, "torch": torch}
            answers = {"ivhl": ours(record), "plain": theirs(json.loads(text))}
            rows.append(found | answers | {"load_average": record["conditions"]["load_average"]})
    commit = subprocess.run(
        ["git", "-C", HERE, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    text = json.dumps({"commit": commit, "rows": rows}, indent=1)
    (HERE / "answers.json").write_text(f"{text}\n", encoding="utf-8")


main(*sys.argv[1:])
