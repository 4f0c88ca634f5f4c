"""What is known of a target in a cell, in words: its status, a line, and details."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ivhl.measure.failures import headline, number
from ivhl.measure.target_spec import OFF
from ivhl.tracker.support.compat import STATUS_OF
from ivhl.tracker.support.messages import dynamo_id
from ivhl.tracker.wording import Status, counted, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ivhl.script.trying import TargetTried


def verdict(tried: TargetTried) -> Status:
    """Return the status of a target in a cell, as tables of cases have it."""
    if "unavailable" in tried.found:
        return "unavailable"
    failure = tried.found.get("failure")
    if failure is not None:
        return STATUS_OF.get(failure["failure_class"], "failed")
    second = tried.found.get("second") or {}
    if "failure" in second:
        return "failed"
    is_wrong = second.get("unlike") or second.get("off", 0.0) > OFF
    return "wrong" if is_wrong else "works"


def first_line(tried: TargetTried) -> str:
    """Return the verdict with its reason, or with the seconds of a call."""
    status = verdict(tried)
    if status == "unavailable":
        return str(tried.found["unavailable"])
    failure = tried.found.get("failure")
    if failure is not None:
        kind = f"{failure['exception'].rpartition('.')[2]}: " if failure["exception"] else ""
        message = headline(failure["message"])
        if failure["exception"] == "ModuleNotFoundError":  # there is no project here
            message = message.partition(";")[0]
            is_package = "." not in message  # and no module of one that is there
            message += "; --with PACKAGE (in a row: `with`) installs it" * is_package
        if failure["failure_class"] == "environment":
            message += "; the machine is at fault, not PyTorch: see `ivhl doctor`"
        number_of_break = dynamo_id(failure["message"])
        where = failure.get("where") or "<"
        where = "" if where.startswith("<") else f" at {where}"
        return (
            f"{status} in phase {failure['phase']}: {kind}{message}"
            + where
            + (f" [{number_of_break}]" if number_of_break else "")
        )
    if status != "works":
        second = tried.found["second"]
        why = second.get("failure") or _likeness(second)
        return f"{status} with inputs {second['inputs']}: {why}"
    eager, compiled = tried.found["eager_s"], tried.found["compiled_s"]
    again = int(tried.found.get("again", 0))  # e.g. for each value of a counter
    more = f", {counted(again, 'recompile')} in equal calls" if again else ""
    if breaks := _breaks(tried.found):
        more = f", {counted(breaks, 'graph break')}{more}"
    return (
        f"works, {eager / compiled:.2f}x as fast as eager (indicative: {seconds(eager)} to "
        f"{seconds(compiled)} a call){more}"
    )


def _likeness(second: dict[str, Any]) -> str:
    """Return how compiled code compares with eager for the larger batch."""
    if second.get("varies"):
        return "not compared: eager code returns other values in each call"
    if second["unlike"]:
        return str(second["unlike"])
    return "like eager" if second["off"] <= OFF else f"off by {second['off']:.2g}"


def _breaks(found: Mapping[str, Any]) -> int:
    return sum(one["count"] for one in found.get("compile", {}).get("graph_breaks", ()))


def recompiles(found: Mapping[str, Any]) -> int:
    """Return how often code was compiled again for equal inputs."""
    counts = (one["count"] for one in found["compile"]["recompiles"])
    return int(sum(counts) + found.get("again", 0))


def details(tried: TargetTried) -> list[str]:
    """Return what else is known, a line each."""
    found = tried.found
    lines = []
    if "inputs" in found:
        lines.append(f"inputs: {found['inputs']} ({found['inputs_from']})")
    if failure := found.get("failure"):
        lines += failure["message"].splitlines()[1:9]
    if facts := found.get("compile"):
        compile_s = facts.get("cold_s") or facts.get("warm_s") or 0.0
        lines.append(
            f"compiled in {compile_s:.1f} s: {counted(facts['graphs'], 'graph')}, "
            f"{counted(_breaks(found), 'graph break')}, {counted(recompiles(found), 'recompile')}"
        )
        texts = (one["text"].splitlines()[0] for one in facts["graph_breaks"][:5])
        lines += [f"graph break: {text}" for text in texts]
    if errors := [one for one in found.get("accuracy", ()) if one["compiled_max"] is not None]:
        worst = max(errors, key=lambda one: one["compiled_max"] / (one["scale"] or 1.0))
        errors_of = (number(worst[name]) for name in ("compiled_max", "eager_max"))
        what = "error against float64: " + ", eager ".join(errors_of)
        if found.get("reference") == "tolerance":
            what = f"no float64 form; from eager code: {number(worst['compiled_max'])}"
        lines.append(f"{what}, in {worst['output']} of {counted(len(errors), 'output')}")
    if names := found.get("not_compared"):
        lines.append(f"not compared: {', '.join(names[:5])}")
    if found.get("accuracy") == []:  # of random numbers of its own
        lines.append("compared by statistics of many calls, not by value: random numbers differ")
    if second := found.get("second"):
        again = second.get("recompiles", 0)
        lines.append(
            f"a larger batch, {second['inputs']}: "
            + (second.get("failure") or f"{counted(again, 'recompile')}, {_likeness(second)}")
        )
    return lines
