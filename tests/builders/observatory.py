"""Make the table of libraries and its records, without running anything."""

from __future__ import annotations

import math
from contextlib import ExitStack
from itertools import count, product
from typing import TYPE_CHECKING, Any, Final, TextIO

from ivhl.measure.target_spec import Target
from ivhl.observatory.record import Ask, Break, Failed, Observed, Second, to_line
from ivhl.observatory.rows import AskedCase, Library
from ivhl.tracker.views.source import slug

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

RELEASES: Final = (
    "2.2.2", "2.4.1", "2.5.1", "2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1",
    "2.13.0", "2.14.1", "2.15.0",
)  # fmt: skip
# The cells of the goal: 13 + 10 + 6 + 1.
CELLS: Final = (
    *(("3.12", torch) for torch in RELEASES),
    *(("3.13", torch) for torch in RELEASES[-10:]),
    *(("3.14", torch) for torch in RELEASES[-6:]),
    ("3.15", RELEASES[-1]),
)
LIBRARIES: Final = (
    "transformers", "torchvision", "sentence-transformers", "einops", "keras", "timm", "diffusers",
    "stable-baselines3", "vector-quantize-pytorch", "segmentation-models-pytorch",
)  # fmt: skip
ASKS: Final[tuple[Ask, ...]] = ("forward", "step")
LOCK: Final = "0123456789abcdef"
GATE: Final = "Dynamo is not supported on Python {}+"
UNIQUE: Final = (
    "LoweringException: NotImplementedError: make_fallback(aten._unique2.default): a decomposition"
    "\n  target: aten._unique2.default\n  args[0]: TensorBox(StorageBox(\n    InputBuffer()))"
)
BREAK: Final = (
    "Unsupported Tensor.item() call with capture_scalar_outputs=False\n"
    "  Explanation: Dynamo does not support tracing `Tensor.item()` with config.capture_scalar_"
    "outputs=False.\n  For more details about this graph break, please visit: "
    "https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0124.html"
)
WORKS: Final[dict[str, Any]] = {
    "inputs": "float 2,3,64,64", "graphs": 1, "recompiles": 0, "error": 0.02, "compile_s": 6.4,
    "eager_s": 1.2e-3, "compiled_s": 0.8e-3, "status": "works", "why": "",
    "second": Second(inputs="float 3,3,64,64", recompiles=1, off=2e-7),
}  # fmt: skip
_NOTHING: Final[dict[str, Any]] = {
    "graphs": None, "recompiles": None, "error": None, "compile_s": None, "eager_s": None,
    "compiled_s": None, "second": None,
}  # fmt: skip


def failed(
    message: str,
    failure_class: str = "backend_compile",
    *,
    phase: str = "compile",
    **more: str,
) -> dict[str, Any]:
    """Return the fields of a record of a case that failed."""
    names = {"exception": "torch._inductor.exc.InductorError", "where": "timm/layers/pool.py:41"}
    names |= {"frame": "torch/_inductor/lowering.py:_unique2"} | more
    failure = Failed.model_validate(
        {"phase": phase, "class": failure_class, "message": message, **names}
    )
    status = {"wrong": "wrong", "support_gate": "unsupported"}.get(failure_class, "failed")
    why = f"{status} in phase {phase}: {message.partition(chr(10))[0]}"
    return {**_NOTHING, "failure": failure, "status": status, "why": why}


def unavailable(kind: str, why: str) -> dict[str, Any]:
    """Return the fields of a record of a library that cannot be installed."""
    nothing = {"inputs": None, "version": None, "overlay": None}
    return {**_NOTHING, **nothing, "status": "unavailable", "unavailable": kind, "why": why}


# Fields of each verdict.
VERDICTS: Final[dict[str, dict[str, Any]]] = {
    "works": {},
    "slow": {"compiled_s": 1.5e-3},
    "breaks": {"graph_breaks": (Break(text=BREAK, count=3),), "graphs": 4},
    "wrong": failed("gradient of 'weight' is off by 0.31 of its largest value", "wrong"),
    "failed": failed(UNIQUE),
    "unsupported": failed(GATE.format("3.13"), "support_gate"),
    "undecided": failed(
        "No module named 'timm.models'", "import", phase="import", exception="ModuleNotFoundError"
    ),
    "pinned": unavailable("pinned out", "timm 1.0.31 requires torch<2.5"),
    "nowheel": unavailable("no wheel", "tokenizers 0.22 has no wheel for Python 3.15"),
}  # fmt: skip


def make_observed(
    library: str = "timm",
    python: str = "3.12",
    torch: str = "2.15.0",
    **changes: Any,  # noqa: ANN401  (any field of the record)
) -> Observed:
    """Return a record of a case that works; ``changes`` replace its fields."""
    fields: dict[str, Any] = {
        "library": library, "case": "small", "ask": "forward", "version": "1.0.31",
        "target": f"{library.replace('-', '_')}:create()", "cell": f"py{python}-torch{torch}",
        "python": python, "torch": torch, "lock": "ab" * 32, "overlay": LOCK, "row": "cd" * 32,
        "instrument": "21", "machine": "bench", "at": "2026-11-28T12:00:00+00:00", "cpu_s": 31.0,
        "wall_s": 40.0, **WORKS,
    }  # fmt: skip
    return Observed.model_validate(fields | changes)


def make_row(
    name: str, rank: float = math.inf, cases: Iterable[str] = ("small", "large")
) -> Library:
    """Return a row of the table as it is read."""
    module = name.replace("-", "_")
    questions = [
        AskedCase(
            case=case, ask=ask, text=f'{module}:create("{case}")', folder=None, row="cd" * 32,
            target=Target(module, f'create("{case}")', ("2,3,64,64",), ask == "step"),
        )
        for case in cases
        for ask in ASKS
    ]  # fmt: skip
    return Library(name=name, rank=rank, requirements=(name,), questions=tuple(questions))


def table(names: Iterable[str], cases: Iterable[str] = ("small", "large")) -> str:
    """Return the table of libraries as TOML."""
    lines = []
    for number, name in enumerate(names):
        target = f"{name.replace('-', '_')}:create({{}})"
        lines += [
            f"[{name}]",
            f"rank = {200 + 37 * number}" if number % 20 else "",
            f"[{name}.cases]",
        ]
        lines += [
            f"""{case} = {{ target = '{target.format(f'"{case}"')}', inputs = ["2,3,64,64"] }}"""
            for case in cases
        ]
    return "\n".join(lines) + "\n"


def names_of(number: int) -> tuple[str, ...]:
    """Return names of libraries, as long as real ones."""
    more = (f"{LIBRARIES[n % 10]}-{n // 10}" for n in count(10))
    return (*LIBRARIES, *(next(more) for _ in range(number - len(LIBRARIES))))[:number]


def every_verdict(
    names: Iterable[str], cells: Iterable[tuple[str, str]] = CELLS
) -> Iterator[Observed]:
    """Yield records of two cases, forward and step, of each library in each cell.

    Most work; each verdict is there, in runs of releases as they are found.
    """
    kinds = [*VERDICTS]
    for number, name in enumerate(names):
        for place, (python, torch) in enumerate(cells):
            run = number + place // 4
            kind = kinds[(5 * number + place // 4) % len(kinds)] if run % 3 == 0 else "works"
            for case, ask in product(("small", "large"), ("forward", "step")):
                whole = kind in ("unsupported", "pinned", "nowheel", "undecided")
                mine = kind if whole or ask == "step" else "works"
                changes = dict(VERDICTS[mine])
                if mine == "works":
                    changes["compiled_s"] = 1.2e-3 / (1.05 + (number + 3 * place) % 17 / 10)
                if mine in ("failed", "wrong") and number % 4:
                    changes |= failed(
                        f"{name}: {changes['failure'].message}", changes["failure"].failure_class
                    )
                yield make_observed(name, python, torch, case=case, ask=ask, **changes)


def make_observatory(root: Path, records: Iterable[Observed], names: Iterable[str]) -> None:
    """Write the folder ``observatory`` of a project."""
    folder = root / "observatory"
    (folder / "locks").mkdir(parents=True)
    (folder / "libraries.toml").write_text(table(names), encoding="utf-8")
    (folder / "locks" / f"{LOCK}.txt").write_text(
        "timm==1.0.31 --hash=sha256:00\n", encoding="utf-8"
    )
    (folder / "records").mkdir()
    with ExitStack() as stack:
        opened: dict[str, TextIO] = {}
        for record in records:
            path = folder / "records" / f"{slug(record.library)}.jsonl"
            if path.name not in opened:
                opened[path.name] = stack.enter_context(path.open("w", encoding="utf-8"))
            opened[path.name].write(to_line(record) + "\n")
