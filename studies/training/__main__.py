"""``python -m studies.training``: make labels, train, evaluate, and write the package's files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ivhl.mlff.painn import MAX_ATOMIC_NUMBER
from ivhl.mlff.parameters import REFERENCE_ENERGIES
from ivhl.mlff.weights import write_painn
from studies.training.card import choose_samples, figures_of, write_card, write_samples
from studies.training.dataset import fit_reference_energies, load_or_make, select_part
from studies.training.evaluate import evaluate
from studies.training.fit import loss, make_groups, train
from studies.training.plans import full_job, quick_job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.mlff.painn import Parameters
    from studies.training.plans import TrainingJob

SEED = 1  # of the shipped weights
CARD = Path("docs/model-card.md")
WEIGHTS = Path("ivhl/mlff/weights/painn_gfn2.pt")
SAMPLES = Path("tests/unit/painn_gfn2_held_back.json")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    arguments = parser().parse_args(argv)
    # Sums depend on the number of threads, and so would every weight.
    torch.set_num_threads(1)
    job = quick_job(arguments.seed) if arguments.quick else full_job(arguments.seed)
    run(
        job,
        cache=arguments.cache,
        out=arguments.out or (arguments.cache / "quick" if arguments.quick else Path()),
        compiled=not arguments.eager,
        command=quoted(arguments),
    )
    return 0


def quoted(arguments: argparse.Namespace) -> str:
    """Return the command that repeats the run on another machine, without folders of this one."""
    options = [
        *([f"--seed {arguments.seed}"] if arguments.seed != SEED else []),
        *(["--quick"] if arguments.quick else []),
        *(["--eager"] if arguments.eager else []),
    ]
    return " ".join(["nox -s train-mlff", *(["--", *options] if options else [])])


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    p = argparse.ArgumentParser(prog="python -m studies.training", description=__doc__)
    p.add_argument(
        "--seed",
        type=int,
        default=SEED,
        help="seed of labels, weights and order (default: %(default)s)",
    )
    p.add_argument(
        "--cache",
        type=Path,
        default=Path("build/train-mlff"),
        metavar="DIR",
        help="folder for labels and checkpoints; a later run resumes from it (default: %(default)s)",
    )
    p.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="checkout whose weights, model card and test frames are written (default: this one; "
        "with --quick a folder within --cache)",
    )
    p.add_argument("--quick", action="store_true", help="seconds instead of an hour; for tests")
    p.add_argument(
        "--eager", action="store_true", help="compile nothing; takes three times as long"
    )
    return p


def run(job: TrainingJob, *, cache: Path, out: Path, compiled: bool, command: str) -> None:
    """Make labels and weights, or resume a stopped run, and write the results.

    Args:
        job: Settings of the run.
        cache: Folder for labels and checkpoints.
        out: Checkout in which the weights, the model card and the frames of the tests are written.
        compiled: Whether to compile the training steps.
        command: Command that the model card quotes.
    """
    trained = load_or_make(cache, job.trained, job.plan)
    unseen = load_or_make(cache, job.unseen, job.plan)
    n = job.plan.n_trajectories
    to_train = [select_part(m, "train", n) for m in trained]
    validation = [select_part(m, "validation", n) for m in trained]
    held_back = [select_part(m, "held back", n) for m in trained]
    reference = fit_reference_energies(to_train, MAX_ATOMIC_NUMBER)

    def with_references(parameters: Parameters) -> Parameters:
        return {**parameters, REFERENCE_ENERGIES: torch.from_numpy(reference)}

    def watch(epoch: int, parameters: Parameters) -> None:
        if epoch % 10 == 0:
            print(f"  validation: {evaluate(with_references(parameters), validation)}", flush=True)

    parameters = with_references(
        train(
            make_groups(to_train, reference),
            job.recipe,
            checkpoint=cache / f"checkpoint-{job.plan.digest()}.pt",
            step_loss=torch.compile(loss, dynamic=False) if compiled else loss,
            after_epoch=watch,
        )
    )
    samples = choose_samples(held_back, len(job.plan.families))
    labels = f"GFN2-xTB by tblite {job.plan.versions['tblite']}"
    for path in (WEIGHTS, CARD, SAMPLES):
        (out / path).parent.mkdir(parents=True, exist_ok=True)
    write_painn(out / WEIGHTS, parameters, name="painn_gfn2", labels=labels, seed=job.recipe.seed)
    write_samples(out / SAMPLES, samples)
    figures = figures_of(
        parameters, job, trained, unseen, samples, command=command, compiled=compiled
    )
    write_card(out / CARD, figures)
    print(figures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
