"""``python -m studies.rollout``: time the phases of the rollout's strategy in one run, in turns."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import torch

from ivhl.compile import MODES, choose_cache_folder, measuring, set_compile_mode
from ivhl.device import profile
from ivhl.errors import IvhlError, SpecError
from ivhl.git import current_commit
from ivhl.machine.identity import this_machine
from ivhl.measure.engine import PACKAGES_VARIABLE
from ivhl.measure.intervals import paired_ratio
from ivhl.measure.job import choose_clock
from ivhl.measure.launcher import ALLOCATOR
from ivhl.measure.timing import Schedule, time_arms
from ivhl.rollout import Architecture, make_parameters, select_precision
from studies.rollout.arms import FIRST, make_arms
from studies.roofline import check_export
from studies.throughput import measure_flop_rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from studies.rollout.arms import PhaseArm

SCHEMA: Final = "ivhl.rollout-phases/1"
SEED: Final = 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; print an error as a message."""
    arguments = parser().parse_args(argv)
    try:
        if arguments.process is not None:
            found = measure(arguments, drift=arguments.process == 0)
            arguments.export.write_text(json.dumps(found), encoding="utf-8")
            return 0
        if arguments.export is not None:
            check_export(arguments.export)
        run(arguments)
    except IvhlError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"next: {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    p = argparse.ArgumentParser(prog="python -m studies.rollout", description=__doc__)
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--mode", choices=MODES, help="of ivhl.rollout (default: for the device)")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--features", type=int, default=16, help="channels of the first layer (16)")
    p.add_argument("--depth", type=int, default=2, help="residual blocks (2)")
    p.add_argument("--rows", type=int, default=64, help="rows and columns of a field (64)")
    p.add_argument(
        "--realisations", type=int, default=2, help="at once, in all phases but two (2)"
    )
    # A call of evolve does more than its steps, of which people take hundreds.
    p.add_argument("--steps", type=int, default=16, help="steps of a call (16)")
    p.add_argument("--drift-steps", type=int, default=100, help="steps until drift is read (100)")
    p.add_argument("--seconds", type=float, default=25.0, help="of timing, in each process (25)")
    # Processes differ more than rounds do (docs/measuring.md).
    p.add_argument("--processes", type=int, default=2, help="one after the other (2)")
    p.add_argument("--arm", action="append", metavar="NAME", help="repeatable (default: all)")
    p.add_argument("--machine", default=os.uname().nodename, metavar="NAME")
    p.add_argument("--export", type=Path, metavar="FILE", help="write the figures as JSON")
    p.add_argument("--process", type=int, help=argparse.SUPPRESS)
    return p


def run(arguments: argparse.Namespace) -> None:
    """Measure in several processes, print the table, and write the export.

    Raises:
        SpecError: If the name of the machine is not valid, or PyTorch sees no GPU and shall use one.
        subprocess.CalledProcessError: If a process fails; its output is on the terminal.
    """
    began = time.monotonic()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise SpecError(
            "--device cuda: this PyTorch sees no GPU", hint="leave out --device to use the CPU"
        )
    machine = asdict(this_machine(arguments.machine))
    loads = [os.getloadavg()[0]]
    parts = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.processes):
            path = Path(folder, f"{number}.json")
            names = (
                *("device", "threads", "features", "depth", "rows", "realisations"),
                *("steps", "seconds"),
            )
            options = [f"--{name}={getattr(arguments, name)}" for name in names]
            options += [f"--arm={name}" for name in arguments.arm or ()]
            options += [f"--mode={arguments.mode}"] if arguments.mode else []
            subprocess.run(
                [
                    *(sys.executable, "-m", "studies.rollout", *options),
                    *(f"--drift-steps={arguments.drift_steps}", f"--process={number}"),
                    f"--export={path}",
                ],
                env=os.environ
                | {
                    "GLIBC_TUNABLES": ALLOCATOR,
                    "OMP_NUM_THREADS": str(arguments.threads),
                    PACKAGES_VARIABLE: str(Path(folder, "packages")),
                },
                check=True,
            )
            parts.append(json.loads(path.read_text(encoding="utf-8")))
            loads.append(os.getloadavg()[0])
    about = {
        "schema": SCHEMA,
        "commit": current_commit(Path.cwd()),
        "machine": machine,
        "python": platform.python_version(),
        "torch": torch.__version__.partition("+")[0],
        "threads": arguments.threads,
        "clock": choose_clock(arguments.device, arguments.threads),
        "device": parts[0]["device"],
        "load_average": max(loads),
        "n_processes": arguments.processes,
        "features": arguments.features,
        "depth": arguments.depth,
        "n_rows": arguments.rows,
        "n_realisations": arguments.realisations,
        "n_steps": arguments.steps,
        "drift_steps": arguments.drift_steps,
        "mode": arguments.mode,
        "precision": parts[0]["precision"],
        "n_weights": parts[0]["n_weights"],
        "flop": parts[0]["flop"],
        "flop_rate": max(part["flop_rate"] for part in parts),
        "took_s": round(time.monotonic() - began),
        "rows": joined(parts),
    }
    print_table(about)
    if arguments.export is not None:
        arguments.export.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def measure(arguments: argparse.Namespace, *, drift: bool) -> dict[str, Any]:
    """Return what one process measured: samples of every arm from the same rounds, and its drift.

    Args:
        arguments: Of the command line.
        drift: Whether to compare with float64.
    """
    torch.set_num_threads(arguments.threads)
    choose_cache_folder()
    if arguments.mode is not None:
        set_compile_mode(arguments.mode)
    architecture = Architecture(width=arguments.features, depth=arguments.depth)
    device = arguments.device
    precision = select_precision(device)
    rows: dict[str, dict[str, Any]] = {}
    with measuring(), torch.no_grad():
        arms = make_arms(
            architecture,
            n_realisations=arguments.realisations,
            n_rows=arguments.rows,
            precision=precision,
            device=device,
        )
        calls = {}
        for name, arm in arms.items():
            if arguments.arm and name not in arguments.arm:
                continue
            began = time.monotonic()
            try:
                arm.roll(arguments.steps)
            except Exception as error:  # noqa: BLE001  (of a release or another library: shown)
                rows[name] = {"reason": f"{type(error).__name__}: {str(error)[:300]}"}
                continue
            print(f"{name}: first call {time.monotonic() - began:.1f} s", file=sys.stderr)
            rows[name] = {"against": arm.against, "n_weights": arm.n_weights}
            calls[name] = partial(arm.roll, arguments.steps)
        times = time_arms(
            calls,
            clock=choose_clock(device, arguments.threads),
            schedule=Schedule(
                block_s=0.02, total_s=arguments.seconds, min_rounds=8, max_rounds=101
            ),
            seed=SEED,
        )
        exact: dict[Any, torch.Tensor] = {}
        for name, timed in times.items():
            each = arms[name].n_samples * arguments.steps
            rows[name]["samples_s"] = [seconds / each for seconds in timed.samples_s]
            rows[name]["convolutions"] = convolution_share(arms[name], arguments.steps, device)
            rows[name]["drift"] = (
                drift_of(arms[name], arguments.drift_steps, exact) if drift else None
            )
    kernels = [w[0] for w in make_parameters(architecture, torch.Generator()).values()]
    return {
        "device": device if device == "cpu" else f"{device} {torch.cuda.get_device_name()}",
        "precision": str(precision).removeprefix("torch."),
        "n_weights": architecture.n_weights,
        "flop": 2.0 * arguments.rows**2 * sum(w.numel() for w in kernels if w.ndim > 1),
        "flop_rate": measure_flop_rate(torch.device(device)),
        "rows": rows,
    }


def convolution_share(arm: PhaseArm, n_steps: int, device: str) -> float | None:
    """Return the part of a call's time that convolutions take; ``None`` if it shows none.

    Those in a package of AOTInductor are not seen by the profiler.
    """
    if device == "cuda":
        # The kernels of cuDNN, and those of Triton in their place, have names of many kinds.
        return None
    began = time.perf_counter()
    arm.roll(n_steps)
    elapsed = time.perf_counter() - began
    with profile(device=device) as seen:
        arm.roll(n_steps)
    spent = sum(seconds for name, seconds, _ in seen.kernels() if "convolution" in name)
    return min(spent / elapsed, 1.0) or None


def drift_of(arm: PhaseArm, n_steps: int, exact: dict[Any, torch.Tensor]) -> float | None:
    """Return how far the last state is from the one in float64, as ``measure_drift`` counts it.

    Args:
        arm: What rolls out.
        n_steps: After so many steps.
        exact: Last states in float64 that were computed before, by what computes them; filled.
    """
    if arm.exact is None:
        return None
    if arm.exact not in exact:
        exact[arm.exact] = arm.exact(n_steps)
    double = exact[arm.exact]
    apart = arm.roll(n_steps).double() - double
    scale = double - double.mean((-2, -1), keepdim=True)
    return float(apart.square().mean().sqrt() / scale.square().mean().sqrt())


def joined(parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each arm from what the processes measured.

    Its ``speedup`` over the first phase and ``by_hand``, over what a person writes, are intervals
    within this run; both are ``None`` if the arm failed in a process.
    """
    samples: dict[str, list[list[float]]] = {}
    for name in parts[0]["rows"]:
        found = [part["rows"].get(name, {}).get("samples_s") for part in parts]
        if all(found):
            samples[name] = found

    def ratio(first: str, name: str) -> dict[str, Any]:
        rounds = [len(part) for part in samples[name]]
        above, below = ([s for part in samples[n] for s in part] for n in (first, name))
        return asdict(paired_ratio(above, below, rounds))

    rows = []
    for name, row in parts[0]["rows"].items():
        if name not in samples:
            reasons = [part["rows"].get(name, {}).get("reason") for part in parts]
            rows.append({"name": name, "reason": next(filter(None, reasons), "")})
            continue
        against = row["against"]
        rows.append(
            {
                **row,
                "name": name,
                "seconds": median(s for part in samples[name] for s in part),
                "samples_s": samples[name],
                "speedup": ratio(FIRST, name) if FIRST in samples else None,
                "by_hand": ratio(against, name) if against in samples else None,
            }
        )
    return rows


def print_table(about: dict[str, Any]) -> None:
    """Print a line for each arm."""
    print(
        f"torch {about['torch']}, {about['device']}, threads {about['threads']}, "
        f"{about['n_weights']:,} weights, {about['precision']} chosen, "
        f"load {about['load_average']:.1f}, {about['took_s']} s"
    )
    print(f"{'':<48}{'ms':>8}  {'speedup':<20}{'over by hand':<20}{'drift':>9}{'conv.':>7}")
    for row in about["rows"]:
        if "reason" in row:
            print(f"{row['name']:<48}{row['reason'][:90]}")
            continue
        ratios = (
            "" if r is None else f"{r['value']:.2f}x [{r['low']:.2f}, {r['high']:.2f}]"
            for r in (row["speedup"], row["by_hand"])
        )
        drift = "" if row["drift"] is None else f"{row['drift']:.1e}"
        share = "" if row["convolutions"] is None else f"{row['convolutions']:.0%}"
        print(
            f"{row['name']:<48}{1e3 * row['seconds']:>8.2f}  "
            + "".join(f"{text:<20}" for text in ratios)
            + f"{drift:>9}{share:>7}"
        )


if __name__ == "__main__":
    sys.exit(main())
