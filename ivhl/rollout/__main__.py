"""``python -m ivhl.rollout``: write a dataset of trajectories, or profile a rollout."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import torch

from ivhl.device import get_device
from ivhl.errors import IvhlError, SpecError, explained
from ivhl.rollout.dataset import DatasetRecipe, generate, initial_conditions, operator_parameters
from ivhl.rollout.evolution import memory_of_sample
from ivhl.rollout.kernels import profile
from ivhl.rollout.noise import StepNoise
from ivhl.rollout.operator import Activation, Architecture, Boundary, Norm
from ivhl.rollout.policy import Policy, PolicyKind
from ivhl.rollout.precision import NAMES, select_precision

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ivhl.rollout.dataset import DatasetProgress

MINUTE = 60
MOST_THREADS = 2**15  # PyTorch takes a number of 32 bits
MOST_OPERATORS = 10_000_000  # a dataset holds some numbers of each in memory
GIB = 2**30
# What errors of the library call a value, and the option that it is of.
_ARCHITECTURE = {
    "n_channels": "--channels",
    "width": "--features",
    "depth": "--depth",
    "n_groups": "--groups",
}
_RECIPE = {
    "n_realisations": "--realisations",
    "n_steps": "--steps",
    "keep_every": "--keep-every",
    "height": "--height",
    "width": "--width",
    "the scale of noise": "--noise",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; print an error as a message."""
    arguments = parser().parse_args(argv)
    try:
        if arguments.threads is not None:
            torch.set_num_threads(arguments.threads)
        check_device(arguments.device)
        recipe = recipe_of(arguments)
        check_memory(arguments, recipe)
        arguments.run(arguments, recipe)
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on with what is missing", file=sys.stderr)
        return 130
    except Exception as error:
        if os.environ.get("IVHL_TRACEBACK") == "1":
            raise
        found: IvhlError = (
            SpecError(str(error), hint="python -m ivhl.rollout --help")
            if isinstance(error, (ValueError, FloatingPointError))
            else explained(error)
        )
        print(f"error: {found}", file=sys.stderr)
        if found.hint:
            print(f"next: {found.hint}", file=sys.stderr)
        return found.exit_code
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    p = argparse.ArgumentParser(prog="python -m ivhl.rollout", description=__doc__)
    commands = p.add_subparsers(required=True, metavar="COMMAND")
    writing = commands.add_parser("generate", help="write a dataset, or what is missing of it")
    writing.set_defaults(run=_generate)
    writing.add_argument("--operators", type=int, required=True, metavar="N")
    writing.add_argument("--out", type=_folder, required=True, metavar="DIR")
    writing.add_argument(
        "--check", action="store_true", help="read what is there first; write again what is broken"
    )
    profiling = commands.add_parser("profile", help="print the five most expensive kernels")
    profiling.set_defaults(run=_profile)
    for one in (writing, profiling):
        _add_recipe(one)
    return p


def _add_recipe(p: argparse.ArgumentParser) -> None:
    usual, network = DatasetRecipe(), Architecture()
    numbers = {
        "--steps": (usual.n_steps, "steps of a trajectory"),
        "--keep-every": (usual.keep_every, "keep a state after each so many steps"),
        "--realisations": (usual.n_realisations, "realisations of each operator"),
        "--height": (usual.height, "rows of a field"),
        "--width": (usual.width, "columns of a field"),
        "--seed": (usual.seed, "seed of weights, initial conditions and noise"),
        "--channels": (network.n_channels, "channels of a field"),
        "--features": (network.width, "channels of the first layer"),
        "--depth": (network.depth, "residual blocks"),
        "--groups": (network.n_groups, "groups of the norm 'group'"),
    }
    for name, (default, text) in numbers.items():
        p.add_argument(name, type=int, default=default, metavar="N", help=f"{text} ({default})")
    p.add_argument("--norm", choices=get_args(Norm), default=network.norm)
    p.add_argument("--activation", choices=get_args(Activation), default=network.activation)
    p.add_argument("--boundary", choices=get_args(Boundary), default=network.boundary)
    p.add_argument("--policy", choices=get_args(PolicyKind), default="residual")
    p.add_argument("--value", type=float, metavar="X", help="number of the policy")
    p.add_argument("--noise", type=float, default=usual.noise, metavar="X", help="scale")
    p.add_argument(
        "--precision",
        choices=("auto", *NAMES),
        default="auto",
        help="of the operator; auto: what is fast on the device",
    )
    p.add_argument("--device", default=str(get_device()))
    p.add_argument("--eager", action="store_true", help="compile nothing")
    p.add_argument("--threads", type=_threads, metavar="N", help="CPU threads")
    p.add_argument("--memory", type=_memory, metavar="GIB", help="most memory of a step")


def _folder(text: str) -> Path:
    if not text:  # pathlib takes it for the current folder
        raise argparse.ArgumentTypeError("must name a folder (got '')")
    return Path(text)


def _threads(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_THREADS:
        raise argparse.ArgumentTypeError(
            f"must be a whole number from 1 to {MOST_THREADS} (got {text!r})"
        )
    return int(text)


def _memory(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:  # also not "nan"
        raise argparse.ArgumentTypeError(f"must be a finite number above 0 (got {text!r})")
    return number


def check_device(name: str) -> None:
    """Raise if PyTorch cannot compute on a device.

    Raises:
        SpecError: If it knows no such device, or does not reach it.
    """
    hint = f"leave out --device to compute on {get_device()}"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise SpecError(
            f"--device must be one that PyTorch knows, such as cpu or cuda:0, got {name!r}",
            hint=hint,
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SpecError(f"--device {name}: this PyTorch sees no GPU", hint=hint)
    try:
        torch.zeros(1, device=device).item()
    except Exception as error:
        told = (str(error).splitlines() or [type(error).__name__])[0].partition(". ")[0]
        raise SpecError(
            f"--device {name}: PyTorch cannot compute there: {told}", hint=hint
        ) from error


def recipe_of(arguments: argparse.Namespace) -> DatasetRecipe:
    """Return the recipe that the arguments describe.

    Raises:
        SpecError: If a number is too small, or does not fit.
    """
    precision = arguments.precision
    if precision == "auto":
        precision = str(select_precision(arguments.device)).removeprefix("torch.")
    with _as_options(_ARCHITECTURE):
        architecture = Architecture(
            n_channels=arguments.channels,
            width=arguments.features,
            depth=arguments.depth,
            norm=arguments.norm,
            n_groups=arguments.groups,
            activation=arguments.activation,
            boundary=arguments.boundary,
        )
    with _as_options({"value": "--value"}):
        policy = Policy(arguments.policy, arguments.value)
    with _as_options(_RECIPE):
        return DatasetRecipe(
            architecture=architecture,
            policy=policy,
            noise=arguments.noise,
            n_realisations=arguments.realisations,
            n_steps=arguments.steps,
            keep_every=min(arguments.keep_every, arguments.steps),
            height=arguments.height,
            width=arguments.width,
            seed=arguments.seed,
            precision=precision,
        )


@contextmanager
def _as_options(options: dict[str, str]) -> Iterator[None]:
    """Let an error of the library name options in place of its own parameters.

    Args:
        options: Name in the library to the option.

    Raises:
        SpecError: In place of a ``ValueError``.
    """
    try:
        yield
    except ValueError as error:
        text = re.sub(rf"\b({'|'.join(options)})\b", lambda name: options[name[0]], str(error))
        raise SpecError(text, hint="python -m ivhl.rollout --help") from error


def check_memory(arguments: argparse.Namespace, recipe: DatasetRecipe) -> None:
    """Raise if not one realisation fits: the folder of a dataset would be made before that shows.

    Raises:
        SpecError: With the least that does.
    """
    least = memory_of_sample(recipe.architecture, recipe.height, recipe.width)
    budget = _budget(arguments)
    if budget is not None and budget < least:
        unit = 10.0 ** (math.floor(math.log10(least / GIB)) - 2)  # three digits, rounded up
        raise SpecError(
            f"--memory must be at least {math.ceil(least / GIB / unit) * unit:.3g} GiB, what one "
            f"realisation takes here, got {arguments.memory:g}",
            hint="give it more, or compute a smaller field: --height, --width, --features",
        )


def _generate(arguments: argparse.Namespace, recipe: DatasetRecipe) -> None:
    if not 1 <= arguments.operators <= MOST_OPERATORS:
        raise SpecError(
            f"--operators must be from 1 to {MOST_OPERATORS:,}, got {arguments.operators}",
            hint="python -m ivhl.rollout --help",
        )
    done = generate(
        recipe,
        arguments.out,
        n_operators=arguments.operators,
        device=arguments.device,
        compiled=not arguments.eager,
        memory_budget=_budget(arguments),
        check=arguments.check,
        report=_show,
    )
    print(f"{arguments.out}: {done.of} operators, {done.written} of them written now")
    if done.unreadable:
        print(f"{done.unreadable} of them could not be read, and were written again")
    if done.diverged:
        print(
            f"{done.diverged} realisations are not finite to the end: finite_steps says up to where"
        )


def _show(done: DatasetProgress) -> None:
    """Print the progress, on one line of a terminal."""
    text = f"{done.operators} of {done.of} operators"
    if done.written:
        each = done.seconds / done.written
        left = each * (done.of - done.operators)
        text += f", {each:.2f} s each, {left // MINUTE:.0f} min {left % MINUTE:.0f} s left"
    if sys.stderr.isatty():
        end = "\n" if done.operators == done.of else ""
        print(f"\r\033[K{text}", end=end, file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def _profile(arguments: argparse.Namespace, recipe: DatasetRecipe) -> None:
    device = arguments.device
    found = profile(
        recipe.architecture,
        {name: values.to(device) for name, values in operator_parameters(recipe, 0).items()},
        initial_conditions(recipe, 0)[None].to(device),
        recipe.n_steps,
        policy=recipe.policy,
        noise=StepNoise(recipe.noise, recipe.seed) if recipe.noise else None,
        precision=getattr(torch, recipe.precision),
        compiled=not arguments.eager,
        memory_budget=_budget(arguments),
    )
    print(f"{'share':>6} {'ms a step':>10} {'calls':>6}  kernel")
    for kernel in found:
        each = 1e3 * kernel.seconds / recipe.n_steps
        print(f"{kernel.share:>6.1%} {each:>10.3f} {kernel.calls:>6}  {kernel.name}")


def _budget(arguments: argparse.Namespace) -> int | None:
    return None if arguments.memory is None else int(arguments.memory * GIB)


if __name__ == "__main__":
    sys.exit(main())
