"""The table: each metric, the goal, and the best public detector."""

import statistics
from collections.abc import Callable, Collection, Mapping

from .metrics import LATE, Counts, Detector, annotated, cpu_seconds, online, planted, unchanged
from .series import LabelledSeries

__all__ = ["score", "table"]

Results = list[tuple[LabelledSeries, Collection[int]]]
Rows = list[tuple[str, str]]

LABELLED = ("tcpd", "perf_labelled", "asv_real")
PLANTED = ("semi", "mixed", "synth")
MOST_GROUPS = 40  # more say nothing
RATIOS = ("ratio", "ratio_asv", "ratio_torch")

# Best public detector on held-out series, and what to reach: detection/README.md, section 5.
GOALS: Mapping[str, tuple[str, str]] = {
    "semi F1": ("0.881 mongo", ">= 0.90"),
    "synth F1": ("0.864 PELT-RBF tuned", ">= 0.89"),
    "false alarms per 1000": ("0.12 Perfherder t tuned", "<= 0.3; 0.5 fresh"),
    "asv_real F1": ("0.951 PELT-RBF tuned", ">= 0.95"),
    "asv_real F1*": ("0.863 PELT-RBF tuned", ">= 0.87"),
    "delay found": ("0.943 PELT-RBF tuned", ">= 0.95"),
    "delay median": ("3 Otava tuned, twice", "<= 3"),
    "delay mean": ("7.1 PELT-RBF tuned", "<= 7"),
    "delay false alarms per 1000": ("1.5 PELT-RBF tuned", "<= 1.5"),
    "perf_labelled F1": ("0.973", ">= 0.97"),
    "tcpd F1": ("0.782 Perfherder t", ">= 0.74"),
    "ratio F1": ("0.768 Otava", ">= 0.80"),
    "ratio_asv F1": ("0.741 mongo", ">= 0.78"),
    "ratio_torch F1": ("0.532 GLR", ">= 0.57"),
    "ratio quiet series with an alarm": ("0 to 0.04", "<= 0.01"),
    "ratio_asv quiet series with an alarm": ("", "<= 0.05"),
    "ratio_torch quiet series with an alarm": ("", "<= 0.05"),
    "CPU s, n=100": ("0.0014", "<= 0.005"),
    "CPU s, n=1000": ("0.015", "<= 0.05"),
    "CPU s, n=10000": ("0.15", "<= 0.5"),
}


def score(
    suites: Mapping[str, list[LabelledSeries]], detect: Detector, *, detail: bool = False
) -> Rows:
    """Return metric and figure for all suites that there are."""
    rows: Rows = []
    quiet: Results = []
    for name, many in suites.items():
        if name == "delay":
            rows += _online(many, detect, detail=detail)
            continue
        results: Results = [(one, detect(one.values, one.intervals)) for one in many]
        if name in LABELLED:
            mean, pooled = annotated(results)
            rows += [(f"{name} F1", f"{mean:.3f}"), (f"{name} F1*", f"{pooled:.3f}")]
        else:
            rows += _planted(name, results, detail=detail)
        if name in PLANTED or name == "asv_real":
            quiet += results
    if quiet:
        wrong, points, bad, all_ = unchanged(quiet)
        rows.append(
            (
                "false alarms per 1000",
                f"{1000 * wrong / max(1, points):.2f} ({bad} of {all_} series)",
            )
        )
    rows += [(f"CPU s, n={n}", f"{seconds:.4f}") for n, seconds in cpu_seconds(detect).items()]
    return rows


def _planted(name: str, results: Results, *, detail: bool) -> Rows:
    """Score a suite whose truth is known."""
    margin = 1 if name in RATIOS else 2
    total = planted(results, margin)
    rows = [
        (f"{name} F1", f"{total.f1:.3f}"),
        (f"{name} precision, recall", f"{total.precision:.3f}, {total.recall:.3f}"),
    ]
    if name in RATIOS:
        _, _, bad, all_ = unchanged(results)
        rows.append(
            (f"{name} quiet series with an alarm", f"{bad / max(1, all_):.3f} ({bad} of {all_})")
        )
    if detail:
        rows += _by(name, results, margin, lambda one: one.family)
        if name in RATIOS:
            rows += _by(name, results, margin, lambda one: str([abs(step) for step in one.steps]))
    return rows


def _by(name: str, results: Results, margin: int, key: Callable[[LabelledSeries], str]) -> Rows:
    """Score each group of series by itself."""
    groups: dict[str, Results] = {}
    for one, found in results:
        groups.setdefault(key(one), []).append((one, found))
    rows = []
    for group, part in sorted(groups.items()):
        counts: Counts = planted(part, margin)
        _, _, bad, all_ = unchanged(part)
        text = f"right {counts.right}, reported {counts.reported}, true {counts.true}"
        rows.append((f"- {name}, {group}", f"{counts.f1:.3f} ({text}; alarm in {bad} of {all_})"))
    return rows if len(rows) <= MOST_GROUPS else []


def _online(many: list[LabelledSeries], detect: Detector, *, detail: bool) -> Rows:
    """Score how soon a step is reported."""
    each = [(one, *online(one, detect)) for one in many]
    delays = [delay for _, delay, _, _ in each]
    wrong, prefixes = sum(bad for _, _, bad, _ in each), sum(n for _, _, _, n in each)
    rows = [
        ("delay found", f"{sum(delay < LATE for delay in delays) / len(delays):.3f}"),
        ("delay median", f"{statistics.median(delays):g}"),
        ("delay mean", f"{statistics.mean(delays):.1f}"),
        ("delay false alarms per 1000", f"{1000 * wrong / prefixes:.2f} ({wrong})"),
    ]
    if detail:
        groups: dict[str, list[tuple[int, int]]] = {}
        for one, delay, bad, _ in each:
            groups.setdefault(one.family, []).append((delay, bad))
            groups.setdefault(f"{abs(one.steps[0]):g}", []).append((delay, bad))
        rows += [
            (f"- delay, {group}", f"{sorted(d for d, _ in some)}, {sum(b for _, b in some)} wrong")
            for group, some in sorted(groups.items())
        ]
    return rows


def table(rows: Rows) -> str:
    """Return the rows as Markdown."""
    lines = ["| metric | here | goal | best public |", "|---|---|---|---|"]
    for name, figure in rows:
        best, goal = GOALS.get(name, ("", ""))
        lines.append(f"| {name} | {figure} | {goal} | {best} |")
    return "\n".join(lines)
