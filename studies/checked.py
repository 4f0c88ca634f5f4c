"""Write a plain script that checks a verdict of the observatory by hand: no part of ivhl runs in it.

``python -m studies.checked LIBRARY CASE ASK CELL`` prints it, from the newest record; ``--write``
puts it into ``observatory/checked/LIBRARY-CASE-ASK.py``. The script makes the target, calls it
eagerly in float32 and in float64, compiles it, and prints how far each is from the others, or the
exception. Its exit status is 1 if compiled code is wrong, 2 if it raises, else 0.

``python -m studies.checked --draw 10`` draws a tenth of what works, takes a record of each signature
that is wrong or fails where it is compiled, runs the script of each in an environment of both locks
of its record, and adds a line to ``observatory/checked/outcomes.csv``: what was recorded, and how
the script ended. ``--signatures 10`` does so with the ten signatures that most libraries show.
Both agree only if PyTorch logs as many graph breaks as were recorded.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Final

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from ivhl.errors import IvhlError
from ivhl.matrix.spec import CellSpec
from ivhl.observatory.observing import LOCKS
from ivhl.observatory.plain import batch, check_module, free_names, plain
from ivhl.observatory.record import read_observed
from ivhl.observatory.rows import read_rows
from ivhl.observatory.signatures import signatures_of
from ivhl.observatory.views import breaks_of
from ivhl.records.text import printable
from ivhl.script.cells import cell_in_use

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from ivhl.observatory.record import Observed
    from ivhl.observatory.signatures import Signature

OBSERVATORY: Final = Path(__file__).parents[1] / "observatory"
_SCRIPT: Final = '''\
"""{library} {version}, {case}, {ask}: {status} in {cell}.

{why}
Checks it without ivhl:

    uv run --no-project --python {python} --with torch=={torch} {packages} {name}
"""

import dataclasses
import sys
{pathlib}
import torch
{imports}
torch.set_num_threads(1)  # as in the record
torch._logging.set_logs(graph_breaks=True, dynamo=20)  # 20: also functions that are given up
STEP = {step}


def make():
    """Return the function or the model, with the weights of one seed."""
    torch.manual_seed(0)
    made = {expression}
    made = made() if isinstance(made, type) else made
    return made.train(STEP) if isinstance(made, torch.nn.Module) else made


# Positional inputs and those by name. All batches are called in turn, and the last one is judged.
BATCHES = [{batches}]


def inputs(dtype, batch):
    """Return the inputs of a batch, drawn with one seed; floats in this dtype."""
    torch.manual_seed(1)

    def cast(x):
        x = x.to(dtype) if torch.is_tensor(x) and x.is_floating_point() else x
        return x.requires_grad_() if STEP and torch.is_tensor(x) and x.is_floating_point() else x

    arguments, named = batch()
    return [cast(x) for x in arguments], {{name: cast(x) for name, x in named.items()}}


def tensors(value, path="output"):
    """Yield each tensor of an output with its path."""
    if torch.is_tensor(value):
        yield path, value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from tensors(one, f"{{path}}.{{name}}")
    elif isinstance(value, (list, tuple)):
        for number, one in enumerate(value):
            yield from tensors(one, f"{{path}}.{{number}}")
    elif dataclasses.is_dataclass(value) or (hasattr(value, "__dict__") and not callable(value)):
        yield from tensors(vars(value), path)


def run(dtype, compiled):
    """Return outputs, and of a step all gradients, by their paths."""
    function = make()
    is_model = isinstance(function, torch.nn.Module)
    if is_model:
        function = function.to(dtype)
    call = torch.compile(function) if compiled else function
    for batch in BATCHES:
        arguments, named = inputs(dtype, batch)
        torch.manual_seed(2)
        before = torch.get_rng_state()
        with torch.set_grad_enabled(STEP or not is_model):  # as in the record
            outputs = call(*arguments, **named)
    found = dict(tensors(outputs))
    if STEP:
        draws = torch.Generator().manual_seed(3)
        loss = sum(
            (one * torch.randn(one.shape, generator=draws, dtype=torch.float64).to(one.dtype)).sum()
            for one in found.values()
            if one.requires_grad
        )
        if not isinstance(loss, int):
            loss.backward()
        elif not compiled:  # compiled code that alone has no gradients is wrong
            raise ValueError("no output depends on a parameter or an input by its gradient")
        leaves = dict(function.named_parameters()) if is_model else {{}}
        leaves.update(tensors([arguments, named], "input"))
        found.update((f"grad.{{name}}", x.grad) for name, x in leaves.items() if x.grad is not None)
    else:  # a call may write into its inputs
        found.update(tensors([arguments, named], "input"))
    if not torch.equal(before, torch.get_rng_state()):
        print("random numbers are drawn: compiled code may draw others")
    return {{name: x.detach().cpu() for name, x in found.items()}}


def distance(one, other):
    """Return the largest difference of two tensors; of places that are not finite in both, none."""
    if one.shape != other.shape:
        return float("inf")
    one, other = (x.to(torch.complex128 if x.is_complex() else torch.float64) for x in (one, other))
    same = (one == other) | (one.isnan() & other.isnan())
    off = (one - other).abs().masked_fill(same, 0.0).nan_to_num(nan=float("inf"))
    return float(off.max()) if off.numel() else 0.0


def attempt(what, *settings):
    """Return what a run returns; print the exception and return nothing if it raises."""
    try:
        return run(*settings)
    except Exception as error:
        kind = f"{{type(error).__module__}}.{{type(error).__name__}}"
        print(f"{{what}} raises {{kind}}: {{error}}"[:3000])


print("torch", torch.__version__, "Python", sys.version.split()[0])
exact = attempt("eager float64", torch.float64, False)
eager = attempt("eager float32", torch.float32, False)
compiled = attempt("compiled float32", torch.float32, True)
if compiled is None or eager is None:
    sys.exit(2)
exact = eager if exact is None else exact
sizes = {{name: float(x.abs().max()) if x.numel() else 0.0 for name, x in exact.items()}}
largest = max([size for name, size in sizes.items() if name.startswith("grad.")], default=0.0)
wrong = sorted(exact.keys() ^ compiled.keys())
print(f"{{'differences up to':32}} {{'eager-float64':>14}} {{'compiled-float64':>17}}", end=" ")
print(f"{{'compiled-eager':>15}} {{'value up to':>12}}")
for name in sorted(exact.keys() & compiled.keys() & eager.keys()):
    # A gradient may vanish, and is then rounding alone: it counts beside all gradients.
    scale = max(sizes[name], largest if name.startswith("grad.") else 0.0)
    off = [
        distance(eager[name], exact[name]),
        distance(compiled[name], exact[name]),
        distance(compiled[name], eager[name]),
    ]
    figures = f"{{off[0]:14.3g}} {{off[1]:17.3g}} {{off[2]:15.3g}} {{sizes[name]:12.3g}}"
    print(f"{{name[:32]:32}} {{figures}}")
    # Eager code may be exact by luck: with one weight of its window rounded the other way, as in
    # compiled code, the eager similarity of pytorch-msssim is 3e-5 of the value off, too.
    if off[1] > max(10 * off[0], 1e-4 * scale):
        wrong.append(name)
print("wrong:", ", ".join(wrong)) if wrong else print("compiled code is as exact as eager")
sys.exit(bool(wrong))
'''


def script_of(
    record: Observed, functions: Path = Path("../functions"), needs: Sequence[str] = ()
) -> str:
    """Return the script that checks a record.

    Args:
        record: The record.
        functions: Folder of the files that rows name, as the script finds it.
        needs: Requirements of its row, the library first; without them, the library alone.

    Raises:
        SpecError: If an input of the record cannot be made again.
    """
    module, _, expression = record.target.partition(":")
    paths = place = ""
    if module.endswith(".py"):
        # Dynamo of 2.11.0 imports the module of what it resumes after a graph break.
        folder = json.dumps(str(functions))
        paths = "from pathlib import Path\n"
        place = f"\nsys.path.insert(0, str(Path(__file__).parent / {folder}))\n"
        module = Path(module).stem
    check_module(record.library, module)
    imports = f"{place}from {module} import {', '.join(free_names(expression))}\n"
    if record.failure is not None and record.failure.phase == "import":
        imports = f"\ntry:\n{indent(imports.strip(), '    ')}\n{_NOT_IMPORTED}"
    batches = [record.inputs or ""]
    if record.status != "works" and record.second:
        # A call that raises after the second batch was right has the first batch again.
        batches += [record.second.inputs, *batches * (record.failure is not None)]
    about = ("library", "version", "case", "ask", "status", "cell", "python", "torch", "why")
    return _SCRIPT.format(
        **{name: plain(str(getattr(record, name))) for name in about},
        name=plain(f"{record.library}-{record.case}-{record.ask}.py"),
        packages=plain(_packages(record, needs)),
        pathlib=paths,
        imports=imports,
        step=record.ask == "step",
        expression=expression,
        batches=_lines(batch(record, inputs) for inputs in batches),
    )


def _packages(record: Observed, needs: Sequence[str]) -> str:
    """Return the options of uv that add a library, as it was recorded, and what it needs."""
    if not needs:
        return f"--with {record.library}=={record.version}"
    library = Requirement(needs[0])
    if record.version is not None:
        library.specifier = SpecifierSet(f"=={record.version}")
    return " ".join(f"--with {shlex.quote(str(one))}" for one in (library, *needs[1:]))


def _lines(values: Iterable[str]) -> str:
    return "\n" + "".join(f"    {value},\n" for value in values)


# As the script says what compiled code raises; Python's own status would be that of a wrong result.
_NOT_IMPORTED: Final = """\
except Exception as error:
    print(f"import raises {type(error).__module__}.{type(error).__name__}: {error}"[:3000])
    sys.exit(2)
"""
_NAMES: Final = ("LIBRARY", "CASE", "ASK", "CELL")
# Exit status of the script of a record with this status.
_ENDS: Final = {"works": 0, "wrong": 1, "failed": 2, "unsupported": 2}
_LOGGED: Final = re.compile(r"[VIWE]\d{4} ")  # how a line of PyTorch's log begins
_BREAK: Final = re.compile(
    r"Graph break (?:\([^)\n]*suppressed[^)\n]*\) )?in user|WON'T CONVERT <?"
)
_HEAD: Final = (
    *("library", "version", "case", "ask", "cell", "recorded", "at", "exit", "agrees", "says"),
    *("graph_breaks", "counted"),
)


def drawn(
    records: Iterable[Observed], percent: int, seed: int, known: Container[tuple[str, ...]] = ()
) -> list[Observed]:
    """Return a share of the records that work, and one of each failure of which none is known."""
    every = sorted(records, key=lambda record: record.key)
    works = [record for record in every if record.status == "works"]
    fails = [
        signature
        for signature in signatures_of(every)
        if signature.cause.kind in ("wrong", "failed")
        and signature.cause.phase in ("", "compile", "accuracy")
        and not any(_about(record) in known for record in signature.records)
    ]
    # By its key, so that further records change nothing of what was drawn.
    draws = ((hashlib.sha256(f"{seed} {one.key}".encode()).digest()[0], one) for one in works)
    return [*(one for draw, one in draws if draw * 100 < percent * 256), *cheapest(fails)]


def most_shared(records: Iterable[Observed], number: int) -> list[Observed]:
    """Return a record of each signature that most libraries show."""
    return cheapest(sorted(signatures_of(records), key=lambda one: -len(one.libraries))[:number])


def cheapest(signatures: Iterable[Signature]) -> list[Observed]:
    """Return the cheapest record of the last release of each signature."""
    found = [
        min((r for r in one.records if r.torch == one.last), key=lambda record: record.cpu_s)
        for one in signatures
    ]
    return list({one.key: one for one in found}.values())


def run_script(record: Observed, observatory: Path) -> tuple[int, str, int]:
    """Run the script of a record where it was recorded.

    Returns:
        Exit status, the line that says most, and how many graph breaks PyTorch logged, functions
        that it gave up among them.
    """
    library = next(one for one in read_rows(observatory) if one.name == record.library)
    overlay = record.overlay and (observatory / LOCKS / f"{record.overlay}.txt").read_text("utf-8")
    cell = CellSpec(record.python, record.torch)
    with (
        tempfile.TemporaryDirectory() as folder,
        cell_in_use(cell, library.requirements, overlay or None) as place,
    ):
        script = Path(folder) / "script.py"
        functions = (observatory / "functions").resolve()
        script.write_text(script_of(record, functions), encoding="utf-8")
        done = subprocess.run(
            [place / "bin" / "python", script],
            cwd=folder,
            env={"HOME": folder, "PATH": os.environ["PATH"], "TORCHINDUCTOR_CACHE_DIR": folder},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=1800,
        )
    lines = [x for x in done.stdout.splitlines() if x.strip() and not _LOGGED.match(x)]
    says = next((line for line in lines if " raises " in line), lines[-1] if lines else "")
    says = re.sub(r"\S*/site-packages/", "", says)  # a path of this machine
    return done.returncode, printable(says)[:200], logged_breaks(done.stdout)


def logged_breaks(log: str) -> int:
    """Return the number of graph breaks and of functions that PyTorch gives up, by its log.

    A function that is given up after a break in it has only that one; a generator has none.
    """
    events = _BREAK.findall(log)
    same: list[bool] = [a.startswith("G") and b == "WON'T CONVERT " for a, b in pairwise(events)]
    return len(events) - sum(same)


def _about(record: Observed) -> tuple[str, ...]:
    """Return the fields of a line of the outcomes that say which record it checks."""
    return (
        *(record.library, record.version or "", record.case, record.ask, record.cell),
        *(record.status, record.at),
    )


def known_lines(observatory: Path) -> set[tuple[str, ...]]:
    """Return which records have a line in ``checked/outcomes.csv``."""
    path = observatory / "checked" / "outcomes.csv"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {tuple(line[name] for name in _HEAD[:7]) for line in csv.DictReader(lines)}


def check(
    records: Iterable[Observed], observatory: Path, known: Container[tuple[str, ...]]
) -> Iterator[tuple[str, ...]]:
    """Run the script of each record that is not known; yield a line of the outcomes for each."""
    for record in records:
        about = _about(record)
        if about in known:
            continue
        try:
            status, says, breaks = run_script(record, observatory)
        except (IvhlError, subprocess.TimeoutExpired) as error:
            print(f"{' '.join(about[:5])}: not checked: {error}", file=sys.stderr)
            continue
        recorded = breaks_of(record)
        crashed = record.failure is not None and record.failure.failure_class == "crash"
        ends = status < 0 if crashed else status == _ENDS[record.status]
        agrees = ends and (status != 0 or recorded == breaks)
        yield (*about, f"{status}", "yes" if agrees else "no", says, f"{recorded}", f"{breaks}")


def check_chosen(records: Iterable[Observed], observatory: Path) -> int:
    """Check records that have no line yet, and add theirs; return how many disagree."""
    path = observatory / "checked" / "outcomes.csv"
    disagree = 0
    for line in check(records, observatory, known_lines(observatory)):
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if not file.tell():
                writer.writerow(_HEAD)
            writer.writerow(line)
        disagree += line[8] == "no"
        print(", ".join(f"{name} {said}" for name, said in zip(_HEAD, line, strict=True)))
    return disagree


def main(argv: Sequence[str] | None = None) -> int:
    """Print or write the script of a record, or check what is drawn."""
    parser = argparse.ArgumentParser(prog="python -m studies.checked", description=__doc__)
    parser.add_argument("record", nargs="*", metavar=" ".join(_NAMES))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--draw", type=int, metavar="PERCENT")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--signatures", type=int, metavar="NUMBER")
    parser.add_argument("--observatory", type=Path, default=OBSERVATORY)
    given = parser.parse_args(argv)
    records = read_observed(
        given.observatory / "records", lambda text: print(text, file=sys.stderr)
    )
    if given.draw is not None:
        chosen = drawn(records.values(), given.draw, given.seed, known_lines(given.observatory))
        return 1 if check_chosen(chosen, given.observatory) else 0
    if given.signatures is not None:
        chosen = most_shared(records.values(), given.signatures)
        return 1 if check_chosen(chosen, given.observatory) else 0
    wanted = tuple(given.record)
    if len(wanted) != len(_NAMES):
        parser.error(f"name {' '.join(_NAMES)}, --draw PERCENT or --signatures NUMBER")
    found = [record for key, record in records.items() if key[:4] == wanted]
    if not found:
        known = ", ".join(" ".join(key[:4]) for key in records if key.library == wanted[0])
        print(
            f"{' '.join(wanted)}: no record; of this library: {known or 'none'}", file=sys.stderr
        )
        return 2
    try:
        rows = {one.name: one.requirements for one in read_rows(given.observatory)}
        newest = max(found, key=lambda record: record.at)
        text = script_of(newest, needs=rows.get(newest.library, ()))
    except IvhlError as error:
        print(f"{error}\n  {error.hint}", file=sys.stderr)
        return 2
    if not given.write:
        print(text, end="")
        return 0
    path = given.observatory / "checked" / f"{'-'.join(wanted[:3])}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
