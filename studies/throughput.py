"""Measure the time per structure in batches of 1, 4, 16 and 64 mixed molecules, on one thread.

``python -m studies.throughput`` prints a table; ``--export FILE`` keeps its figures. docs/mlff.md
explains them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import torch

from ivhl.compile import MODES, get_compile_mode, get_compiled, measuring, set_compile_mode
from ivhl.git import current_commit
from ivhl.measure.engine import capture
from ivhl.mlff import painn
from ivhl.mlff.batch import (
    batch_energies_forces,
    batch_energies_forces_one_graph,
    bucket_of,
    group_by_bucket,
    pad_molecules,
)
from ivhl.mlff.edges import edge_energies_forces, join_molecules
from ivhl.mlff.parameters import cast_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Molecule = tuple[torch.Tensor, torch.Tensor]
    Run = Callable[[], list[torch.Tensor]]  # energies
    Form = Callable[..., tuple[torch.Tensor, torch.Tensor]]

# How the dense forms run.
Way = Literal["eager", "compiled", "graph"]

# Numbers of atoms of H2, H2O, NH3, CH4, C2H4, CH3OH, C2H6 and C6H6.
COUNTS: Final = (2, 3, 4, 5, 6, 6, 8, 12)
BATCHES: Final = (1, 4, 16, 64)
SPACING: Final = 1.3  # Å
SCHEMA: Final = "ivhl.throughput/1"


def make_molecules(n_molecules: int) -> list[Molecule]:
    """Return clusters of carbon and hydrogen with as many atoms as small molecules have.

    The elements do not affect the time; that all atoms are within the cutoff does.

    Args:
        n_molecules: Number of molecules; their sizes repeat ``COUNTS``.

    Returns:
        For each molecule, atomic numbers ``[n]`` and positions ``[n, 3]`` in Å, float32: corners of
        a cubic lattice with random displacements.
    """
    generator = torch.Generator().manual_seed(0)
    corners = torch.cartesian_prod(*[torch.arange(3.0)] * 3) * SPACING
    molecules = []
    for number in range(n_molecules):
        n_atoms = COUNTS[number % len(COUNTS)]
        numbers = torch.tensor([1, 6])[torch.randint(2, (n_atoms,), generator=generator)]
        noise = 0.1 * torch.randn(n_atoms, 3, generator=generator)
        molecules.append((numbers, corners[:n_atoms] + noise))
    return molecules


def count_flops(n_atoms: int) -> float:
    """Return the operations in the matrix multiplications for energy and forces of one molecule.

    Args:
        n_atoms: Atoms of the molecule, without padding.

    Source:
        ``cost`` of ``benchmarks.molecules.energy_forces``.
    """
    f = painn.N_FEATURES
    return 6.0 * (30.0 * n_atoms * f**2 + 120.0 * n_atoms**2 * f)


def make_arms(
    molecules: Sequence[Molecule], parameters: painn.Parameters, *, way: Way
) -> dict[str, Run]:
    """Return the functions to time; each computes energies and forces, and returns the energies.

    Args:
        molecules: The molecules of a batch.
        parameters: Weights, in the dtype and on the device of the molecules.
        way: How the dense forms run; joined edges are always eager.
    """
    forms: dict[Way, Form] = {
        "eager": batch_energies_forces,
        "compiled": _compiled_batch,
        "graph": _captured_batch,
    }
    batched, compiled = forms[way], way != "eager"
    # Single molecules take the form of the batches, so that the speedup is due to batching alone;
    # padded if compiled, because each length is compiled.
    alone = [
        pad_molecules([m], n_atoms=bucket_of(len(m[0])) if compiled else len(m[0]))
        for m in molecules
    ]
    padded = pad_molecules(molecules)
    groups = [
        pad_molecules([molecules[place] for place in places], n_atoms=bucket)
        for bucket, places in group_by_bucket(len(m[0]) for m in molecules).items()
    ]
    *joined, owners = join_molecules(molecules)

    def one_by_one() -> list[torch.Tensor]:
        return [batched(parameters, *one)[0] for one in alone]

    def one_batch() -> list[torch.Tensor]:
        return [batched(parameters, *padded)[0]]

    def by_bucket() -> list[torch.Tensor]:
        return [batched(parameters, *group)[0] for group in groups]

    def edges() -> list[torch.Tensor]:
        energies, _, _ = edge_energies_forces(
            parameters, *joined, molecule_of_atom=owners, n_molecules=len(molecules)
        )
        return [energies]

    return {
        "one by one": one_by_one,
        "one batch": one_batch,
        "by bucket": by_bucket,
        "edges": edges,
    }


# Dynamo compiles a function for at most 8 shapes, so each shape has its own function.
_functions: Final[dict[tuple[int, ...], Form]] = {}


def _compiled_batch(
    parameters: painn.Parameters, numbers: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    shape = tuple(numbers.shape)
    if shape not in _functions:
        _functions[shape] = get_compiled(
            batch_energies_forces_one_graph, dynamic=False, fullgraph=True
        )
    return _functions[shape](parameters, numbers, positions)


_captured: Final[dict[tuple[int, ...], Form]] = {}


def _captured_batch(
    parameters: painn.Parameters, numbers: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Replay the compiled form from a CUDA graph, whose weights are those of its first call."""
    shape = tuple(numbers.shape)
    if shape not in _captured:
        _captured[shape] = capture(partial(_compiled_batch, parameters), (numbers, positions))
    return _captured[shape](numbers, positions)


def time_arms(
    arms: Mapping[str, Run], *, device: torch.device, rounds: int, least_s: float
) -> dict[str, list[float]]:
    """Return the seconds per call of each arm in each round; the arms run in random order.

    Args:
        arms: Functions to time; each is called once before.
        device: Device of the arms. On the CPU, CPU time of the process is measured.
        rounds: Number of samples.
        least_s: Approximate duration of a sample, which repeats its arm.
    """
    clock = time.process_time if device.type == "cpu" else time.perf_counter

    def seconds(run: Run, times: int) -> float:
        start = clock()
        for _ in range(times):
            run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return (clock() - start) / times

    times = {}
    for name, run in arms.items():
        run()
        times[name] = max(1, round(least_s / max(seconds(run, 2), 1e-6)))
    samples: dict[str, list[float]] = {name: [] for name in arms}
    order = random.Random(0)  # noqa: S311  (an order, not a secret)
    for _ in range(rounds):
        for name in order.sample(list(arms), len(arms)):
            samples[name].append(seconds(arms[name], times[name]))
    return samples


def measure_flop_rate(device: torch.device) -> float:
    """Return operations per second of a 512 x 512 matrix multiplication, float32, best of 20."""
    a = torch.randn(512, 512, device=device)
    arms = {"product": lambda: [a @ a]}
    best = min(time_arms(arms, device=device, rounds=20, least_s=0.02)["product"])
    return 2.0 * 512**3 / best


def device_name(device: torch.device) -> str:
    """Return a device as records name it: ``cpu``, or ``cuda`` with the name of the GPU."""
    return f"cuda {torch.cuda.get_device_name(device)}" if device.type == "cuda" else device.type


def _run_all(runs: Sequence[Run]) -> list[torch.Tensor]:
    return [energies for run in runs for energies in run()]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--compile", action="store_true", help="compile the dense forms")
    ways.add_argument(
        "--cuda-graph", action="store_true", help="and replay them from CUDA graphs, on a GPU"
    )
    parser.add_argument("--mode", choices=MODES, help="of torch.compile (default: for the device)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--least-seconds", type=float, default=0.2, help="duration of a sample")
    parser.add_argument("--batch", type=int, nargs="+", default=list(BATCHES))
    parser.add_argument("--export", type=Path, metavar="FILE", help="write the figures as JSON")
    arguments = parser.parse_args()
    arguments.device = torch.device(arguments.device)
    if arguments.cuda_graph and arguments.device.type != "cuda":
        parser.error("--cuda-graph needs --device cuda")
    if arguments.device.type == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: this PyTorch sees no GPU")
    way: Way = "graph" if arguments.cuda_graph else "compiled" if arguments.compile else "eager"
    if arguments.mode is not None:
        set_compile_mode(arguments.mode)
    load = os.getloadavg()[0]
    rows = []
    torch.set_num_threads(1)
    weights = painn.make_parameters(torch.Generator().manual_seed(0))
    parameters = cast_parameters(weights, dtype=torch.float32, device=arguments.device)
    rate = measure_flop_rate(arguments.device)
    print(f"torch {torch.__version__}, {device_name(arguments.device)}, one thread")
    print(f"the limit is that of matrix multiplication, {rate / 1e9:.0f} Gflop/s here")
    print(f"{'batch':>5}  {'way':<11}{'us/structure':>13}{'speedup':>9}{'of limit':>10}")
    for size in arguments.batch:
        molecules = [
            (numbers.to(arguments.device), positions.to(arguments.device))
            for numbers, positions in make_molecules(max(size, len(COUNTS)))
        ]
        batches = [molecules[start : start + size] for start in range(0, len(molecules), size)]
        limit = statistics.mean(count_flops(len(m[0])) for m in molecules) / rate
        parts = [make_arms(batch, parameters, way=way) for batch in batches]
        arms = {name: partial(_run_all, [part[name] for part in parts]) for name in parts[0]}
        with measuring():
            samples = time_arms(
                arms,
                device=arguments.device,
                rounds=arguments.rounds,
                least_s=arguments.least_seconds,
            )
        first = samples["one by one"]
        for name, seconds in samples.items():
            each = statistics.median(seconds) / len(molecules)
            ratio = statistics.median(a / b for a, b in zip(first, seconds, strict=True))
            print(
                f"{size:>5}  {name:<11}{1e6 * each:>13.0f}{ratio:>8.2f}x{100 * limit / each:>9.0f}%"
            )
            rows.append(
                {
                    "batch": size,
                    "way": name,
                    "seconds": each,
                    "speedup": ratio,
                    "of_limit": limit / each,
                    "compiled": way != "eager" and name != "edges",
                }
            )
    if arguments.export:
        about = {
            "schema": SCHEMA,
            "commit": current_commit(Path.cwd()),
            "torch": torch.__version__,
            "device": device_name(arguments.device),
            "compile": way != "eager",
            "cuda_graph": way == "graph",
            "mode": None if way == "eager" else get_compile_mode(arguments.device),
            "load_average": load,
            "flops": rate,
            "rows": rows,
        }
        arguments.export.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
