"""What ``ivhl try`` prints of a case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ivhl.measure.rehearsal import _print_compile

if TYPE_CHECKING:
    import pytest


def guard(compilation: int, length: int, function: str = "forward") -> dict[str, Any]:
    """Return a recompile as Dynamo 2.15.0 describes it, with the guards of earlier compilations."""
    lines = [
        f"Recompiling function {function} in calls.py:104",
        "    triggered by the following guard failure(s):",
        f"    - 0/{compilation}: len(G['_SEEN']) == {length}  # _SEEN.append(1)",
        "    - User stack trace:",
        '    -   File "calls.py", line 106, in forward',
        *(f"    - 0/{n}: len(G['_SEEN']) == {length - n}" for n in range(compilation)),
    ]
    return {"text": "\n".join(lines), "count": 2}


def test_recompiles_that_differ_in_numbers_alone_are_printed_as_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    recompiles = [guard(n, 164 + n) for n in range(8)] + [guard(0, 9, "backward")]
    counts = {"frames_total": 9, "frames_ok": 8, "graphs": 8, "warm_s": 2.4}
    _print_compile({"compile": counts | {"graph_breaks": [], "recompiles": recompiles}})
    assert capsys.readouterr().out == (
        "  first call 2.4 s: 8 graphs, 8 of 9 frames compiled, 1 run eagerly, graph breaks of "
        "0 kinds, recompiles of 2 kinds\n"
        "  recompile, 16x: Recompiling function forward in calls.py:104\n"
        "    triggered by the following guard failure(s):\n"
        "    - 0/0: len(G['_SEEN']) == 164  # _SEEN.append(1)\n"
        "  recompile, 2x: Recompiling function backward in calls.py:104\n"
        "    triggered by the following guard failure(s):\n"
        "    - 0/0: len(G['_SEEN']) == 9  # _SEEN.append(1)\n"
    )
    one = {"frames_total": 1, "frames_ok": 1, "graphs": 1, "warm_s": 1.0, "recompiles": []}
    _print_compile({"compile": one | {"graph_breaks": [{"count": 1, "text": "print()"}]}})
    assert capsys.readouterr().out == (
        "  first call 1.0 s: 1 graph, 1 of 1 frame compiled, graph breaks of 1 kind, recompiles of "
        "0 kinds\n"
        "  graph break, 1x: print()\n"
    )
