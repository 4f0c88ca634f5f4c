"""What is timed: the phases of the strategy, what a person writes by hand, and other libraries."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch

from ivhl.measure.engine import export
from ivhl.rollout import Architecture, Policy, StepNoise, evolve, make_parameters
from ivhl.rollout.evolution import make_next, prepare_weights
from studies.rollout.written import (
    NOISE,
    WrittenOperator,
    WrittenStep,
    make_fourier,
    roll,
    roll_noisy,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ivhl.rollout.operator import Parameters

    # From a number of steps to the last state.
    Roll = Callable[[int], torch.Tensor]

DT: Final = 0.1
FIRST: Final = "eager, as the original"
COMPILED: Final = "+ `torch.compile`"
OURS: Final = "+ `evolve`: noise drawn before the step"
SHORT: Final = "+ bfloat16"
CHOSEN: Final = "+ GroupNorm, GELU by tanh: another model"
REALISATIONS: Final = "+ 4 times as many realisations at once"
OPERATORS: Final = "or 4 operators at once"
EAGER: Final = "`evolve(compiled=False)`"
HAND: Final = "by hand, noise before the step, `torch.compile`"
HAND_SHORT: Final = "the same in bfloat16"
EXPORTED: Final = "AOTInductor of our step, weights as inputs"
GRAPHS: Final = "by hand, `reduce-overhead`"  # on a GPU only
PACKAGED: Final = "AOTInductor by hand, weights in the package"
FOURIER: Final = "neuraloperator FNO, eager"
FOURIER_COMPILED: Final = "neuraloperator FNO, `torch.compile`"
TIMES: Final = 4  # of the larger batches


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseArm:
    """One way to roll out.

    Attributes:
        roll: What is timed.
        n_samples: Realisations of all operators in a call.
        against: Name of the arm that a person writes by hand for the same numbers.
        exact: The same rollout in float64, which drift is measured from; ``None``: there is none.
        n_weights: Weights of an operator.
    """

    roll: Roll
    n_samples: int
    against: str | None = None
    exact: Roll | None = None
    n_weights: int = 0


def make_arms(
    architecture: Architecture,
    *,
    n_realisations: int,
    n_rows: int,
    precision: torch.dtype,
    device: str = "cpu",
) -> dict[str, PhaseArm]:
    """Return the arms by name; nothing is compiled before its first call.

    Args:
        architecture: Architecture of the operators, with instance norms.
        n_realisations: Realisations of an operator, before they are more.
        n_rows: Rows and columns of a field.
        precision: What ``select_precision`` chooses: what the last phases take, and ``SHORT`` if it
            is short.
        device: Where all tensors are; weights and first states are the same on each.
    """
    generator = torch.Generator().manual_seed(0)
    group = Architecture(
        n_channels=architecture.n_channels,
        width=architecture.width,
        depth=architecture.depth,
        norm="group",
        n_groups=min(8, architecture.width),
        activation="gelu-tanh",
    )
    # Of the same shapes in both: blocks of convolutions, gains and shifts.
    parameters = make_parameters(architecture, generator, n_operators=TIMES)
    parameters = {name: values.float().to(device) for name, values in parameters.items()}
    shape = (TIMES, TIMES * n_realisations, architecture.n_channels, n_rows, n_rows)
    state = torch.randn(shape, generator=generator).to(device)
    one = {name: values[:1] for name, values in parameters.items()}
    few = state[:1, :n_realisations].clone()

    def ours(
        one_architecture: Architecture,
        weights: Parameters,
        start: torch.Tensor,
        precision: torch.dtype = torch.float32,
        *,
        against: str | None = None,
        exact: Roll | None = None,
        compiled: bool = True,
    ) -> PhaseArm:
        run = partial(
            _evolve, one_architecture, weights, start, precision, start.shape[0], compiled
        )
        return PhaseArm(
            roll=run,
            n_samples=start.shape[0] * start.shape[1],
            against=against,
            exact=exact or partial(_evolve_exactly, one_architecture, weights, start),
            n_weights=architecture.n_weights,
        )

    arms = _written(architecture, one, few[0], precision)
    exact = partial(_evolve_exactly, architecture, one, few)
    arms[OURS] = ours(architecture, one, few, against=HAND, exact=exact)
    if precision != torch.float32:
        arms[SHORT] = ours(architecture, one, few, precision, against=HAND_SHORT, exact=exact)
    arms[CHOSEN] = ours(group, one, few, precision)
    arms[REALISATIONS] = ours(group, one, state[:1].clone(), precision)
    arms[OPERATORS] = ours(group, parameters, state[:, :n_realisations].clone(), precision)
    arms[EAGER] = ours(architecture, one, few, against=HAND, exact=exact, compiled=False)
    arms[EXPORTED] = PhaseArm(
        roll=_exported(architecture, one, few[0]),
        n_samples=n_realisations,
        against=HAND,
        exact=arms[HAND].exact,
        n_weights=architecture.n_weights,
    )
    names = (
        *(FIRST, COMPILED, OURS, SHORT, CHOSEN, REALISATIONS, OPERATORS, EAGER),
        *(HAND, GRAPHS, HAND_SHORT, EXPORTED, PACKAGED),
    )
    return {name: arms[name] for name in names if name in arms} | _fourier(architecture, few[0])


def _evolve(  # noqa: PLR0917  (called once)
    architecture: Architecture,
    parameters: Parameters,
    state: torch.Tensor,
    precision: torch.dtype,
    operators_at_once: int,
    compiled: bool,  # noqa: FBT001
    n_steps: int,
) -> torch.Tensor:
    return evolve(
        *(architecture, parameters, state, n_steps),
        policy=Policy("residual", DT),
        noise=StepNoise(NOISE),
        precision=precision,
        operators_at_once=operators_at_once,
        compiled=compiled,
    )


def _evolve_exactly(
    architecture: Architecture, parameters: Parameters, state: torch.Tensor, n_steps: int
) -> torch.Tensor:
    double = {name: values.double() for name, values in parameters.items()}
    return _evolve(architecture, double, state.double(), torch.float64, 1, False, n_steps)  # noqa: FBT003


def _written(
    architecture: Architecture, parameters: Parameters, start: torch.Tensor, precision: torch.dtype
) -> dict[str, PhaseArm]:
    """Return the arms that use PyTorch alone."""
    weights = {name: values[0] for name, values in parameters.items()}
    noisy, quiet = (
        WrittenOperator(architecture, weights, noisy=n).to(start.device).eval()
        for n in (True, False)
    )

    def original(operator: torch.nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: x + DT * operator(x)

    def arm(run: Roll, exact: Roll, against: str | None = None) -> PhaseArm:
        return PhaseArm(
            roll=run,
            n_samples=start.shape[0],
            against=against,
            exact=exact,
            n_weights=architecture.n_weights,
        )

    # Made here: an arm that is not called costs nothing else.
    twin = original(copy.deepcopy(noisy).double())
    noisy_exact = partial(roll_noisy, twin, start.double())
    exact = partial(roll, WrittenStep(copy.deepcopy(quiet).double(), DT), start.double())
    step, short = WrittenStep(quiet, DT), WrittenStep(quiet, DT, torch.bfloat16)
    found = {
        FIRST: arm(partial(roll_noisy, original(noisy), start), noisy_exact),
        COMPILED: arm(partial(roll_noisy, torch.compile(original(noisy)), start), noisy_exact),
        HAND: arm(partial(roll, torch.compile(step), start), exact),
        PACKAGED: arm(_packaged(step, start), exact, against=HAND),
    }
    if start.device.type == "cuda":
        found[GRAPHS] = arm(partial(roll, _by_graphs(step), start), exact, against=HAND)
    if precision != torch.float32:
        found[HAND_SHORT] = arm(partial(roll, torch.compile(short), start), exact)
    return found


def _by_graphs(step: WrittenStep) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the step as a CUDA graph, whose next run overwrites the memory of its result."""
    compiled = torch.compile(step, mode="reduce-overhead")

    def run(x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        torch.compiler.cudagraph_mark_step_begin()
        following: torch.Tensor = compiled(x, noise)
        return following.clone()

    return run


def _packaged(step: WrittenStep, start: torch.Tensor) -> Roll:
    made: list[Any] = []

    def run(n_steps: int) -> torch.Tensor:
        if not made:
            made.append(export(step, (start, torch.zeros_like(start))))
        return roll(made[0], start, n_steps)

    return run


def _exported(architecture: Architecture, parameters: Parameters, start: torch.Tensor) -> Roll:
    weights = prepare_weights(parameters, torch.float32)
    following = make_next(architecture, "residual")
    value = torch.tensor(DT, device=start.device)
    made: list[Any] = []

    def flat(*inputs: torch.Tensor) -> torch.Tensor:
        return following(dict(zip(weights, inputs[3:], strict=True)), *inputs[:3])

    def run(n_steps: int) -> torch.Tensor:
        if not made:
            inputs = (start, value, torch.zeros_like(start), *weights.values())
            made.append(export(flat, inputs))
        return roll(lambda x, noise: made[0](x, value, noise, *weights.values()), start, n_steps)

    return run


def _fourier(architecture: Architecture, start: torch.Tensor) -> dict[str, PhaseArm]:
    """Return the arms of neuraloperator; none where it is not installed.

    Its spectral convolution computes in complex64 in any dtype, so there is no float64 to compare
    with.
    """
    made = make_fourier(architecture)
    if made is None:
        return {}
    model, n_weights = made
    step = WrittenStep(model.to(start.device), DT)
    return {
        name: PhaseArm(
            roll=partial(roll, one, start), n_samples=start.shape[0], n_weights=n_weights
        )
        for name, one in ((FOURIER, step), (FOURIER_COMPILED, torch.compile(step)))
    }
