"""Compare hot paths with hand-written ``torch.compile`` and with eager code, on a training loop.

``python -m studies.hotpath`` prints, for the MLP 784-256-10 with SGD: the CPU seconds of a step, and
the ratios of hand-written compilation to hot paths (goal: 0.9) and of eager code to the same while
recording (goal: 0.97), for ever and in the nine steps before call N. Arms take turns in blocks; a
ratio is taken within each round. With ``--sizes 17`` the batches have 17 sizes in turns, and the
last ratio is that of the nine rounds of them before call N. With ``--plain`` parameters are changed
by hand, without an optimizer. With ``--stages`` it prints which part of a step takes the time.
With ``--device cuda`` seconds are elapsed ones, until the GPU has done a block of steps.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import time
from functools import partial
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import torch

from ivhl import hotpath
from ivhl.compile import choose_cache_folder
from ivhl.measure.intervals import paired_ratio

if TYPE_CHECKING:
    from collections.abc import Callable

    Step = Callable[[], torch.Tensor]
    Clock = Callable[[], float]

WIDTHS: Final = (784, 256, 10)
THRESHOLD: Final = 10
STEPS_COMPILING: Final = 6
ARMS: Final = ("eager", "whole", "parts", "hot", "record", "first")


class Trainer:
    """A model with its optimizer and a batch; each arm has one of its own.

    Args:
        batch: Number of samples.
        device: Where all tensors are; their numbers are the same on each.
    """

    def __init__(self, batch: int, device: str = "cpu") -> None:
        torch.manual_seed(0)
        wide, hidden, out = WIDTHS
        self.model = torch.nn.Sequential(
            torch.nn.Linear(wide, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, out)
        ).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(batch, wide, generator=generator).to(device)
        self.y = torch.randn(batch, out, generator=generator).to(device)

    def step(self) -> torch.Tensor:
        """Return the loss of a step, as one would first write it."""
        predicted = self.model(self.x)
        loss = ((predicted - self.y) ** 2).mean()
        loss.backward()
        self.update()
        self.clear()
        return loss

    def update(self) -> None:
        """Change the parameters."""
        self.optimizer.step()

    def clear(self) -> None:
        """Drop the gradients."""
        self.optimizer.zero_grad()


class PlainTrainer(Trainer):
    """The same without an optimizer, as introductions to PyTorch write it."""

    def update(self) -> None:
        """Change the parameters."""
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter -= 0.01 * parameter.grad  # noqa: PLW2901  (in place)

    def clear(self) -> None:
        """Drop the gradients."""
        self.model.zero_grad()


def varied(trainer: Trainer, sizes: int) -> Step:
    """Return the step with batches of several sizes in turns: one less of the first at each."""
    batches = itertools.cycle([(trainer.x[n:], trainer.y[n:]) for n in range(sizes)])

    def step() -> torch.Tensor:
        trainer.x, trainer.y = next(batches)
        return trainer.step()

    return step


def by_hand(trainer: Trainer, way: str) -> Step:
    """Return the step, compiled by hand in one of the ways that PyTorch's tutorials have.

    Args:
        trainer: Whose step.
        way: ``whole``: the step as it is, in which Dynamo breaks the graph at the backward pass;
            ``parts``: the loss and the optimizer's step, each compiled.
    """
    if way == "whole":
        compiled: Step = torch.compile(trainer.step, dynamic=False)
        return compiled

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return ((trainer.model(x) - y) ** 2).mean()

    loss_compiled: Any = torch.compile(loss_of, fullgraph=True, dynamic=False)
    is_plain = isinstance(trainer, PlainTrainer)
    update: Any = torch.compile(
        trainer.update if is_plain else trainer.optimizer.step, dynamic=False
    )

    def step() -> torch.Tensor:
        loss: torch.Tensor = loss_compiled(trainer.x, trainer.y)
        loss.backward()
        update()
        trainer.clear()
        return loss

    return step


def clock_of(device: str) -> Clock:
    """Return what reads seconds: CPU time of the process, or elapsed time once the GPU is done."""
    if device == "cpu":
        return time.process_time

    def read() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return read


def time_rounds(
    arms: dict[str, Callable[[int], float]], *, rounds: int, steps: int
) -> dict[str, list[float]]:
    """Return the seconds per step of each arm in each round, in random order."""
    samples: dict[str, list[float]] = {name: [] for name in arms}
    order = random.Random(0)  # noqa: S311  (an order, not a secret)
    for _ in range(rounds):
        for name in order.sample(list(arms), len(arms)):
            samples[name].append(arms[name](steps))
    return samples


def timed(step: Step, clock: Clock) -> Callable[[int], float]:
    """Return a function that runs a step so often and returns seconds per step."""

    def run(steps: int) -> float:
        start = clock()
        for _ in range(steps):
            step()
        return (clock() - start) / steps

    return run


def timed_in(
    block: hotpath.auto, step: Step, clock: Clock, *, warm: int
) -> Callable[[int], float]:
    """Return the same in a block; entering and leaving it is not timed, nor are ``warm`` steps."""

    def run(steps: int) -> float:
        with block:
            for _ in range(warm):
                step()
            start = clock()
            for _ in range(steps):
                step()
            return (clock() - start) / steps

    return run


def timed_before_hot(step: Step, clock: Clock, sizes: int = 1) -> Callable[[int], float]:
    """Return a function that times the steps 1 to 9 of a block of its own, again and again.

    With several sizes of batches, it times those before each size has had nine, but for some in
    which the optimizer's step, which has had ten, is compiled and its graph is chosen.
    """
    n = (THRESHOLD - 1) * sizes

    def run(steps: int) -> float:
        seconds = []
        for _ in range(max(1, steps // n)):
            block = hotpath.auto(threshold=THRESHOLD)
            with block:
                for number in range(n):
                    start = clock()
                    step()
                    if not 0 <= number - THRESHOLD + 1 < STEPS_COMPILING:
                        seconds.append(clock() - start)
        return sum(seconds) / len(seconds)

    return run


def stages(trainer: Trainer) -> list[float]:
    """Return the wall seconds of forward pass and loss, backward pass, optimizer and zeroing."""
    times = [time.perf_counter()]
    loss = ((trainer.model(trainer.x) - trainer.y) ** 2).mean()
    times.append(time.perf_counter())
    loss.backward()
    times.append(time.perf_counter())
    trainer.update()
    times.append(time.perf_counter())
    trainer.clear()
    times.append(time.perf_counter())
    return [after - before for before, after in pairwise(times)]


def show_stages(kind_of_trainer: type[Trainer], batch: int, rounds: int) -> None:
    """Print the median microseconds of each stage: eager, hot, recorded, and in a new block."""
    eager, hot, recorded, new = (kind_of_trainer(batch) for _ in range(4))
    found: dict[str, list[list[float]]] = {}
    block, record = hotpath.auto(threshold=THRESHOLD), hotpath.auto(threshold=1_000_000_000)
    for number in range(rounds + 1):
        turns: dict[str, list[list[float]]] = {"eager": [stages(eager) for _ in range(20)]}
        with block:
            turns["hot"] = [stages(hot) for _ in range(20)]
        with record:
            for _ in range(20):
                is_resting = record.recorder.turns.rests
                kind = "recorded, not looked at" if is_resting else "recorded, looked at"
                turns.setdefault(kind, []).append(stages(recorded))
        with hotpath.auto(threshold=THRESHOLD):
            for turn in range(1, THRESHOLD):
                turns.setdefault(f"turn {turn} of a new block", []).append(stages(new))
        if number:  # the first round compiles
            for kind, several in turns.items():
                found.setdefault(kind, []).extend(several)
    print(f"batch {batch}: us of forward and loss, backward, optimizer, zero_grad; their sum")
    for kind, several in found.items():
        medians = [1e6 * median(one) for one in zip(*several, strict=True)]
        print(f"{kind:<24}{''.join(f'{one:>8.0f}' for one in medians)}{sum(medians):>9.0f}")


def show_given_up(rounds: int) -> None:
    """Print what five small operations take: eager, compiled, and given up as slower."""
    x = torch.linspace(-1, 1, 64)

    def small(x: torch.Tensor) -> torch.Tensor:
        return ((x * 2).sin() + x).relu() - 1

    def read(x: torch.Tensor) -> object:  # which ends a turn in a block
        return small(x).sum().item()

    def seconds_of(call: Callable[[torch.Tensor], object], steps: int) -> float:
        start = time.process_time()
        for _ in range(steps):
            call(x)
        return (time.process_time() - start) / steps

    def seconds_in(block: hotpath.auto, steps: int) -> float:
        with block:
            seconds_of(read, 2 * THRESHOLD)
            return seconds_of(read, steps)

    arms: dict[str, Callable[[int], float]] = {
        "eager": partial(seconds_of, small),
        "eager, read": partial(seconds_of, read),
    }
    for name, only_faster in (("compiled", False), ("given up", True)):
        function = hotpath.auto(only_faster=only_faster)(small)
        seconds_of(function, 100)
        arms[f"function, {name}"] = partial(seconds_of, function)
        arms[f"block, {name}"] = partial(seconds_in, hotpath.auto(only_faster=only_faster))
    for name, seconds in time_rounds(arms, rounds=rounds, steps=2000).items():
        print(f"{name:<20}{1e6 * median(seconds):>8.1f} us")


def show_sizes(batch: int, sizes: int, rounds: int, clock: Clock) -> None:
    """Print the ratios of eager code to recording with batches of several sizes in turns."""
    steps = {name: varied(Trainer(batch), sizes) for name in ("eager", "record", "first")}
    record = hotpath.auto(threshold=1_000_000_000)
    arms = {
        "eager": timed(steps["eager"], clock),
        "record": timed_in(record, steps["record"], clock, warm=1),
        "first": timed_before_hot(steps["first"], clock, sizes),
    }
    n = (THRESHOLD - 1) * sizes
    for arm in arms.values():
        arm(n)
    samples = time_rounds(arms, rounds=rounds, steps=n)
    name = f"batch {batch}, {sizes} sizes: eager over"
    show(f"{name} recording", samples["eager"], samples["record"], 0.97)
    show(f"{name} rounds 1 to 9", samples["eager"], samples["first"], 0.97)


def show(name: str, over: list[float], under: list[float], goal: float) -> None:
    """Print a ratio with its interval within this run."""
    ratio = paired_ratio(over, under)
    print(
        f"{name}: {ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}], goal {goal}: "
        f"{'reached' if ratio.value >= goal else 'missed'}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m studies.hotpath", description=__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--steps", type=int, default=40, help="of a block")
    parser.add_argument(
        "--sizes", type=int, help="recording with so many sizes of batches instead"
    )
    parser.add_argument(
        "--plain", action="store_true", help="change the parameters by hand, without an optimizer"
    )
    parser.add_argument("--stages", action="store_true", help="the parts of a step instead")
    parser.add_argument("--given-up", action="store_true", help="five small operations instead")
    options = parser.parse_args()
    name = "CPU"
    if options.device == "cuda":
        if options.stages or options.given_up or options.sizes:
            parser.error(
                "--sizes, --stages and --given-up time the CPU alone; leave out --device cuda"
            )
        if not torch.cuda.is_available():
            parser.error("--device cuda: this PyTorch sees no GPU")
        name = torch.cuda.get_device_name()
    clock = clock_of(options.device)
    kind_of_trainer = PlainTrainer if options.plain else Trainer
    torch.set_num_threads(options.threads)
    choose_cache_folder()
    load = os.getloadavg()[0]
    print(f"torch {torch.__version__}, {name}, {options.threads} thread(s), load {load:.1f}")
    if options.given_up:
        show_given_up(options.rounds)
        return
    for batch in options.batch:
        if options.stages:
            show_stages(kind_of_trainer, batch, options.rounds)
            continue
        if options.sizes:
            show_sizes(batch, options.sizes, options.rounds, clock)
            continue
        trainers = {name: kind_of_trainer(batch, options.device) for name in ARMS}
        hot = hotpath.auto(threshold=THRESHOLD)
        # So many repetitions never come: this block records for ever.
        record = hotpath.auto(threshold=1_000_000_000)
        arms = {
            "eager": timed(trainers["eager"].step, clock),
            "whole": timed(by_hand(trainers["whole"], "whole"), clock),
            "parts": timed(by_hand(trainers["parts"], "parts"), clock),
            "hot": timed_in(hot, trainers["hot"].step, clock, warm=1),
            "record": timed_in(record, trainers["record"].step, clock, warm=1),
            "first": timed_before_hot(trainers["first"].step, clock),
        }
        for arm in arms.values():
            arm(20)
        samples = time_rounds(arms, rounds=options.rounds, steps=options.steps)
        for name, seconds in samples.items():
            print(
                f"batch {batch:>4}  {name:<7}{1e6 * sorted(seconds)[len(seconds) // 2]:>9.0f} us"
            )
        best = min(("whole", "parts"), key=lambda name: sorted(samples[name])[options.rounds // 2])
        show(f"batch {batch}: by hand ({best}) over hot paths", samples[best], samples["hot"], 0.9)
        show(f"batch {batch}: eager over recording", samples["eager"], samples["record"], 0.97)
        show(f"batch {batch}: eager over calls 1 to 9", samples["eager"], samples["first"], 0.97)
        show(f"batch {batch}: eager over hot paths", samples["eager"], samples["hot"], 1.0)
        print(hot.report)


if __name__ == "__main__":
    main()
