"""``python -m ivhl.surgical advise``: which parts of a model are worth compiling, by measuring."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.utils._pytree import tree_map

from ivhl.compile import choose_cache_folder
from ivhl.errors import SpecError, explained
from ivhl.measure.__main__ import positive
from ivhl.measure.job import choose_clock
from ivhl.surgical.advice import LEAST_SHARE, TOO_SHORT, advise_parts, counted
from ivhl.surgical.loading import HINT, load_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.records.record import Interval
    from ivhl.surgical.advice import ModelAdvice


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; print an error as a message."""
    arguments = parser().parse_args(argv)
    try:
        run(arguments)
    except Exception as raised:
        if os.environ.get("IVHL_TRACEBACK") == "1":
            raise
        error = explained(raised)
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"next: {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    p = argparse.ArgumentParser(prog="python -m ivhl.surgical", description=__doc__)
    commands = p.add_subparsers(required=True, metavar="COMMAND")
    advising = commands.add_parser("advise", help="say which parts of a model to compile")
    advising.add_argument("module", metavar="MODULE", help=HINT)
    advising.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    advising.add_argument("--threads", type=positive(int), default=1)
    advising.add_argument(
        "--train", action="store_true", help="time a training step: forward and backward"
    )
    advising.add_argument("--json", action="store_true", help="print JSON, for programs")
    return p


def run(arguments: argparse.Namespace) -> None:
    """Measure and print.

    Raises:
        SpecError: If the model cannot be made or does not run, or there is no such device.
    """
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise SpecError("this PyTorch sees no GPU", hint="leave out --device cuda")
    sys.path.insert(0, str(Path.cwd()))
    torch.set_num_threads(arguments.threads)
    choose_cache_folder()
    loaded = load_model(arguments.module)
    inputs = tree_map(
        lambda leaf: leaf.to(arguments.device) if isinstance(leaf, torch.Tensor) else leaf,
        loaded.inputs,
    )
    found = advise_parts(
        loaded.model.to(arguments.device),
        inputs,
        loss=loaded.loss,
        train=arguments.train,
        clock=choose_clock(arguments.device, arguments.threads),
        say=lambda text: print(f"measuring {text} ...", file=sys.stderr, flush=True),
    )
    if arguments.json:
        print(json.dumps(asdict(found), indent=1))
        return
    device = f"{arguments.device}, {counted(arguments.threads, 'thread')}"
    print("\n".join(lines_of(found, f"PyTorch {torch.__version__.partition('+')[0]}, {device}")))


def lines_of(found: ModelAdvice, where: str) -> list[str]:
    """Return what was measured as lines: a table of parts, the model, and what to do."""
    shown = [
        part for part in found.parts if part.failure != TOO_SHORT and part.share >= LEAST_SHARE
    ]
    short = len(found.parts) - len(shown)
    width = max([28, *(2 + len(part.name) for part in shown)])
    called = "a training step" if found.train else "a call"
    lines = [
        f"{found.model} on {where}",
        f"{called} takes {1e3 * found.eager_s:.3g} ms, eager; over itself {interval(found.again)}",
        "",
        f"{'part':<{width}}{'':>12}{'of the time':>13}   compiled alone",
    ]
    for part in shown:
        told = interval(part.speedup) if part.speedup else part.failure
        told += "  <- compile" if part.chosen else ""
        told += f"  ({part.note})" if part.note else ""
        number = counted(
            *((part.n_modules, "module") if part.n_modules else (part.n_calls, "call"))
        )
        lines.append(f"{part.name:<{width}}{number:>12}{part.share:>13.0%}   {told}")
    if short:
        lines.append(f"{counted(short, 'part')} below {LEAST_SHARE:.0%}: not tried")
    if found.out_of_reach:
        names = ", ".join(found.out_of_reach)
        lines.append(f"not looked up by their names, so not tried: {names}")
    lines.append("")
    if found.chosen:
        lines.append(f"these compiled together, the model:  {interval(found.chosen)}")
    if found.whole:
        lines.append(f"the model compiled whole:            {interval(found.whole)}")
    if found.chosen_over_whole:
        lines.append(f"these parts over the whole:          {interval(found.chosen_over_whole)}")
    return [*lines, *found.failures, *found.notes, "", *advice_of(found)]


def advice_of(found: ModelAdvice) -> list[str]:
    """Return what to do: a sentence, and for parts the lines to write."""
    names = " and ".join(part.name for part in found.parts if part.chosen)
    chosen_helps = found.chosen is not None and found.chosen.low > 1.0
    whole_helps = found.whole is not None and found.whole.low > 1.0
    over = found.chosen_over_whole
    if whole_helps and (not chosen_helps or over is None or over.high < 1.0):
        return ["Compile the model whole: model.compile()"]
    if chosen_helps:
        if not whole_helps or over is None or over.low > 1.0:
            sentence = f"Compile {names}:"
        else:
            sentence = (
                f"Compile the model whole, model.compile(), or {names}; no difference was shown "
                "between the two:"
            )
        return [sentence, *(f"    {line}" for line in code_of(found))]
    if found.is_random:
        return [
            "Nothing can be said of the model: model.eval() and dropout=0 draw no random numbers"
        ]
    return ["Compile nothing: neither any part nor the whole model is surely faster"]


def code_of(found: ModelAdvice) -> list[str]:
    """Return what compiles the chosen parts: the imports first."""
    lines = [line for part in found.parts if part.chosen for line in part.code]
    imports = dict.fromkeys(line for line in lines if line.startswith("import "))
    return [*imports, *(line for line in lines if line not in imports)]


def interval(found: Interval) -> str:
    """Return a ratio with its interval."""
    return f"{found.value:.2f}x [{found.low:.2f}, {found.high:.2f}]"


if __name__ == "__main__":
    sys.exit(main())
