"""The report of ``ivhl blame``: Markdown that can be posted upstream, with the script in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ivhl.bench.blame import WITHOUT_WHOLE, Blamed, Suspicion
from ivhl.machine.compiler import compiler_version
from ivhl.machine.identity import this_machine
from ivhl.matrix.locks import LockState, lock_state
from ivhl.tracker.causes.blame import KERNELS_FILE, SLOW_STAGES, STAGES, Tried
from ivhl.tracker.wording import counted, seconds, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


# Characters of a message in a title or a table.
_SHOWN = 160
# Packages whose versions a report names; the lock has all.
_NAMED = ("torch", "triton", "pytorch-triton", "numpy", "sympy")


def write_report(
    root: Path, asked: Suspicion, found: Blamed, releases: Mapping[str, str], command: str
) -> Path:
    """Write the report beside the script, and how the kernels differ; return its path.

    Args:
        root: Root of the project, which has the locks.
        asked: What was asked.
        found: What was found.
        releases: What the records say of each release, oldest first.
        command: The command that made it.
    """
    kernels = asked.folder / KERNELS_FILE
    kernels.unlink(missing_ok=True)  # of an earlier run
    if found.kernels:
        kernels.write_text("".join(f"{line}\n" for line in found.kernels), encoding="utf-8")
    path = asked.folder / "report.md"
    path.write_text("\n".join(_lines(root, asked, found, releases, command)), encoding="utf-8")
    return path


def culprit_of(found: Blamed) -> str:
    """Return the stage, and the pass or lowering in it, as a sentence without its full stop."""
    if found.flaky:
        of = f"{found.rate[0]} of {found.rate[1]} runs"
        first = f"; {found.stage} is the first stage that showed it" if found.stage else ""
        return f"flaky: {of} show it{first}; one before it may have been spared by chance"
    if WITHOUT_WHOLE in found.cures:
        return (
            "what fullgraph=True does around each call, in every stage: without it, it is as fast"
        )
    if found.stage is None:
        return "the stage cannot be told: none shows it, or an earlier one fails in another way"
    words = SLOW_STAGES if found.factors else STAGES
    text = f"stage {found.stage} ({words[found.stage]})"
    if not found.is_sure:
        text = f"perhaps {text}; the intervals of the stages leave another one open"
    if found.bisected:
        one = found.bisected
        where = "" if one["backend"] == found.stage else f" of {one['backend']}"
        named = f" ({one['about']})" if one.get("about") else ""
        if one.get("subsystem") and one.get("subsystem") == one.get("about"):
            text += f"; PyTorch's bisector: {one['subsystem']}{where} cures it"
        elif one.get("subsystem"):
            text += f"; it begins with {one['subsystem']} number {one['number']}{where}{named}"
    return text


def _lines(
    root: Path, asked: Suspicion, found: Blamed, releases: Mapping[str, str], command: str
) -> Iterator[str]:
    bad, good = asked.bad, asked.good
    culprit = culprit_of(found)
    yield f"# `torch.compile`, PyTorch {bad.torch}: {_title(asked, found)}\n"
    yield f"{culprit[0].upper()}{culprit[1:]}.\n"
    yield "## Script\n"
    if found.script.get("script"):
        script = (asked.folder / "repro.py").read_text(encoding="utf-8")
        size = counted(found.script["operations"], "operation")
        yield f"{size}, of {found.script['of']} of the case; inputs {found.script['inputs']}:\n"
        for cell, (shows, printed) in found.shown.items():
            yield f"- {cell} {'shows it' if shows else 'does not show it'}: `{printed}`"
        yield f"\n```python\n{script}```\n"
    else:
        why = found.script.get("why", "the symptom is none of a graph and its inputs")
        yield f"None without the project: {why}. In a checkout of it:\n\n    {command}\n"
    yield "## Stages\n"
    yield from _table(asked, found)
    cures = [f"- `{name}`: {found.settings[name].text}" for name in found.cures]
    tried = sum(one.outcome != "not here" for one in found.settings.values())
    if tried:
        yield "\n## Settings\n"
        yield f"Of {tried} that were tried, {len(cures)} cure it{':' if cures else '.'}\n"
        yield from cures
    if found.undecided:
        yield "\n## Not decided\n"
        yield from (f"- {text}" for text in found.undecided)
    if found.differences and good is not None:
        yield f"\n## Difference between {good.torch} and {bad.torch}\n"
        yield from (one if one.startswith("```") else f"- {one}" for one in found.differences)
    if releases:
        yield "\n## Releases, by the records\n"
        yield from (f"- {release}: {text}" for release, text in releases.items())
    machine, threads = this_machine(), counted(asked.effort.threads, "thread")
    about = f"{machine.system}, {machine.cpu}, {compiler_version()}; {asked.effort.device}"
    yield "\n## Versions\n"
    yield f"{about}, {threads}; case `{asked.case.name}`, made by\n\n    {command}\n"
    for spec in filter(None, (bad, good)):
        yield f"- {_versions(lock_state(root, spec))}"
    yield ""


def _title(asked: Suspicion, found: Blamed) -> str:
    if found.factors:
        return f"compiled code takes {found.factors['inductor'].value:.2f}x as long"
    printed = found.shown.get(asked.bad.id, (False, ""))[1]
    text = found.stages["inductor"].text
    if asked.symptom == "wrong":
        return shortened(f"compiled code is wrong: {printed or text}", _SHOWN)
    return shortened(text.replace("backend='inductor' raised: ", ""), _SHOWN)


def _table(asked: Suspicion, found: Blamed) -> Iterator[str]:
    cells = [asked.bad.id, *([asked.good.id] if found.good and asked.good else [])]
    yield f"| stage | {' | '.join(cells)} |"
    yield f"|---|{'---|' * len(cells)}"
    for stage in STAGES:
        sides: list[Mapping[str, Tried]] = [found.stages]
        if len(cells) > 1:
            sides.append(found.good)
        texts = [_cell(side.get(stage)) for side in sides]
        if stage in found.factors:
            texts[0] += f", {found.factors[stage]}"
        yield f"| {stage} | {' | '.join(texts)} |"


def _cell(one: Tried | None) -> str:
    if one is None:
        return "not run"
    text = shortened(one.text.replace("|", "/"), _SHOWN)
    return f"{text} ({seconds(one.compiled_s)})" if one.compiled_s and text == "works" else text


def _versions(lock: LockState) -> str:
    packages = lock.packages
    named = ", ".join(f"{name} {packages[name]}" for name in _NAMED if name in packages)
    return (
        f"{lock.cell.id}: {named}; {counted(len(packages), 'package')}, lock "
        f"{(lock.sha256 or '')[:12]} (`envs/locks/{lock.path.name}`)"
    )
