"""Evolve states by operators, step by step, in batches that fit into memory."""

from __future__ import annotations

import functools
import math
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import torch

from ivhl.compile import (
    WITHOUT_GRAPHS,
    compile_mode,
    get_compile_mode,
    get_compiled,
    when_cleared,
)
from ivhl.device import capture
from ivhl.rollout.noise import NoiseSource, StepNoise
from ivhl.rollout.operator import (
    check_inputs,
    join_operators,
    joined,
    network,
    split_operators,
)
from ivhl.rollout.policy import Policy, update

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ivhl.rollout.operator import Architecture, Parameters
    from ivhl.rollout.policy import PolicyKind

    Step = Callable[..., None]
    Following = Callable[..., torch.Tensor]

SHORT: Final = (torch.bfloat16, torch.float16)
# How many tensors of a layer are alive at once: the block's input, the output of a convolution, two
# while it is normalised, and the copy of one in another layout that a convolution may make.
ALIVE: Final = 5
# Steps between two looks for NaN: each waits for the device.
STEPS_PER_LOOK: Final = 16


@dataclass(frozen=True, slots=True)
class _Buffers:
    """What the steps of a batch read and write, and the steps.

    Attributes:
        weights: From ``prepare_weights``.
        value: The policy's number.
        states: Each step reads one and writes the other.
        noise: Of the next step; ``None``: none.
        steps: From the first state to the second, and back.
    """

    weights: Parameters
    value: torch.Tensor
    states: tuple[torch.Tensor, torch.Tensor]
    noise: torch.Tensor | None
    steps: tuple[Callable[[], object], Callable[[], object]]


_held: dict[tuple[object, ...], _Buffers] = {}
when_cleared(_held.clear)


def make_step(
    architecture: Architecture,
    kind: PolicyKind,
    *,
    n_operators: int = 1,
    precision: torch.dtype = torch.float32,
) -> Step:
    """Return the function of one step, to be compiled as a whole.

    Args:
        architecture: The architecture of the operators.
        kind: Kind of the policy.
        n_operators: How many operators are joined.
        precision: Precision of the operator; short ones by ``torch.autocast``.

    Returns:
        A function ``(weights, state, value, noise, out)`` without a result, which writes the next
        state into ``out``. ``weights`` come from ``prepare_weights``; ``state`` and ``out`` have
        shape ``[n_realisations, n_operators * n_channels, height, width]``; ``value`` is the
        policy's number as a tensor without axes; ``noise`` has the shape of the state or is
        ``None``.
    """
    following = make_next(architecture, kind, n_operators=n_operators, precision=precision)

    def step(
        weights: Parameters,
        state: torch.Tensor,
        value: torch.Tensor,
        noise: torch.Tensor | None,
        out: torch.Tensor,
    ) -> None:
        out.copy_(following(weights, state, value, noise))

    return step


def make_next(
    architecture: Architecture,
    kind: PolicyKind,
    *,
    n_operators: int = 1,
    precision: torch.dtype = torch.float32,
) -> Following:
    """Return ``make_step`` as a function ``(weights, state, value, noise)`` to the next state."""

    def following(
        weights: Parameters,
        state: torch.Tensor,
        value: torch.Tensor,
        noise: torch.Tensor | None = None,
    ) -> torch.Tensor:
        short = precision in SHORT
        with torch.autocast(state.device.type, dtype=precision if short else None, enabled=short):
            output = network(architecture, weights, state, n_operators)
        output = output.to(state.dtype)
        if noise is not None:
            output = output + noise
        return update(kind, state, output, value)

    return following


def prepare_weights(parameters: Parameters, precision: torch.dtype) -> Parameters:
    """Return the weights of operators as steps take them.

    Operators are joined. Convolutions are in the operator's precision, so that no step converts
    them; gains and shifts keep theirs.
    """
    return {
        name: values.to(precision) if values.ndim > 1 and precision in SHORT else values
        for name, values in join_operators(parameters).items()
    }


# One wrapper for each, so that each has a recompile limit of its own, and a second call of
# ``evolve`` or ``rollout_loss`` finds what the first one compiled.
@functools.cache
def compiled_next(
    architecture: Architecture, kind: PolicyKind, n_operators: int, precision: torch.dtype
) -> Following:
    """Return ``make_next`` compiled as a whole; the same function for the same arguments."""
    following = make_next(architecture, kind, n_operators=n_operators, precision=precision)
    return get_compiled(following, fullgraph=True, dynamic=False)


@functools.cache
def _compiled_step(
    architecture: Architecture, kind: PolicyKind, n_operators: int, precision: torch.dtype
) -> Step:
    step = make_step(architecture, kind, n_operators=n_operators, precision=precision)
    return get_compiled(step, fullgraph=True, dynamic=False)


def _make_buffers(
    step: Step, weights: Parameters, value: torch.Tensor, start: torch.Tensor, *, noisy: bool
) -> _Buffers:
    """Return the buffers of a batch; the second step overwrites ``start``."""
    states = (start, torch.empty_like(start))
    noise = torch.empty_like(start) if noisy else None
    forth = functools.partial(step, weights, states[0], value, noise, states[1])
    back = functools.partial(step, weights, states[1], value, noise, states[0])
    return _Buffers(weights, value, states, noise, (forth, back))


def _fill_captured(
    step: Step, weights: Parameters, value: torch.Tensor, start: torch.Tensor, *, noisy: bool
) -> _Buffers:
    """Return buffers with these values, and the steps as CUDA graphs.

    They belong to this thread and its stream: the next call with the same shapes overwrites them.
    """
    device = start.device
    mode = get_compile_mode(device)
    assert mode is not None  # noqa: S101  (_replays_graphs)
    given = {**weights, "value": value, "state": start}
    key = (
        *(step, mode, noisy, *_settings()),
        *(threading.get_ident(), torch.cuda.current_stream(device).cuda_stream),
        *((name, v.shape, v.dtype, v.device) for name, v in given.items()),
    )
    # Graphs of PyTorch's own would check and copy in each step what they read, and could not be made
    # of a step that writes into a buffer. Ours read where they always read: weights are copied once
    # for a batch, noise is drawn there, and the next state is already where the next step reads it.
    held = _held.get(key)
    # A tensor made in inference mode could not be written to outside of it.
    with torch.inference_mode(mode=False), torch.no_grad():
        if held is None:
            copies = {name: v.clone() for name, v in weights.items()}
            made = _make_buffers(step, copies, value.clone(), start.clone(), noisy=noisy)
            if made.noise is not None:
                made.noise.zero_()  # else the first runs are with whatever was there
            with compile_mode(WITHOUT_GRAPHS[mode]):
                forth, back = capture(*made.steps, device=device)
            held = _held[key] = replace(made, steps=(forth, back))
        places = [*held.weights.values(), held.value, held.states[0]]
        torch._foreach_copy_(places, [*weights.values(), value, start])
    return held


def _settings() -> tuple[object, ...]:
    """Return what else chooses the kernels of a step: a graph keeps those of its capture."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    if hasattr(cudnn, "conv"):
        # Where these were set by the new names, PyTorch refuses to read them by the old ones.
        precision = (cudnn.conv.fp32_precision, matmul.fp32_precision)
    else:
        precision = (cudnn.allow_tf32, matmul.allow_tf32)
    return (
        *precision,
        *(cudnn.enabled, cudnn.benchmark, cudnn.deterministic),
        torch.are_deterministic_algorithms_enabled(),
    )


def _replays_graphs(device: torch.device) -> bool:
    """Return whether compiled steps are captured there as CUDA graphs."""
    return (
        device.type == "cuda"
        and get_compile_mode(device) in WITHOUT_GRAPHS
        and not torch.cuda.is_current_stream_capturing()
    )


def memory_of_sample(
    architecture: Architecture, height: int, width: int, *, dtype: torch.dtype = torch.float32
) -> int:
    """Return an upper bound of the bytes that one realisation of one operator takes in a step.

    Without the trajectory that is kept, and without weights.
    """
    cells: int = height * width * dtype.itemsize
    return cells * (ALIVE * max(architecture.widths) + 4 * architecture.n_channels)


def evolve(
    architecture: Architecture,
    parameters: Parameters,
    state: torch.Tensor,
    n_steps: int,
    *,
    policy: Policy | None = None,
    noise: StepNoise | None = None,
    precision: torch.dtype | None = None,
    compiled: bool = True,
    keep_every: int | None = None,
    memory_budget: int | None = None,
    operators_at_once: int | None = None,
    first_operator: int = 0,
    check: bool = True,
) -> torch.Tensor:
    """Return states after some steps, without a gradient.

    Two buffers take turns: each step reads one and writes the other. On a GPU, in modes with CUDA
    graphs, the compiled step is captured as two of them; they, their buffers and a copy of the
    weights are kept for the next call until ``ivhl.compile.clear_compile_cache``.

    Args:
        architecture: The architecture of the operators.
        parameters: Their weights, from ``operator.make_parameters``, in the dtype of the state.
        state: Shape ``[n_operators, n_realisations, n_channels, height, width]``, float32 or
            float64; not changed.
        n_steps: Number of steps.
        policy: How the next state follows; default: residual with 0.01.
        noise: Noise of every step; default: none.
        precision: Precision of the operator; default: that of the state. See
            ``precision.select_precision``.
        compiled: Whether to compile the step, with the mode of ``ivhl.compile``.
        keep_every: Return the state after each so many steps, and the first one; default: the last
            one only.
        memory_budget: Bytes that a step may take (``memory_of_sample``); what does not fit is
            evolved in several batches, with the same results up to rounding.
        operators_at_once: How many operators a step computes at most; default: 1 on a CPU, and else
            all.
        first_operator: Number of the first operator for its noise, in a larger set.
        check: Whether to raise where a state is not finite.

    Returns:
        The last state, in the shape of ``state``; with ``keep_every``, shape ``[1 + n_steps //
        keep_every, *state.shape]``.

    Raises:
        TypeError: If the policy or the noise is a plain name or number.
        ValueError: If a shape, a dtype or a number is wrong, or a single sample exceeds the memory
            budget.
        FloatingPointError: If a state is not finite; names operator, realisation and steps.
    """
    n_operators = check_inputs(architecture, parameters, state)
    precision = check_precision(precision, state)
    if operators_at_once is None:
        operators_at_once = 1 if state.device.type == "cpu" else n_operators
    _check_number("n_steps", n_steps, 0)
    _check_number("operators_at_once", operators_at_once, 1)
    _check_number("first_operator", first_operator, 0)
    if keep_every is not None:
        _check_number("keep_every", keep_every, 1)
    if memory_budget is not None:
        _check_number("memory_budget", memory_budget, 0)
    policy = check_policy(policy, noise)
    n_realisations, (height, width) = state.shape[1], state.shape[-2:]
    at_once = batch_sizes(
        (n_operators, n_realisations),
        memory_of_sample(architecture, height, width, dtype=state.dtype),
        memory_budget=memory_budget,
        operators_at_once=operators_at_once,
    )
    make = _compiled_step if compiled else make_step
    step = make(architecture, policy.kind, n_operators=at_once[0], precision=precision)
    replays = compiled and n_steps > 0 and _replays_graphs(state.device)
    begin = _fill_captured if replays else _make_buffers
    n_kept = 1 if keep_every is None else 1 + n_steps // keep_every
    kept = state.new_empty(n_kept, *state.shape)
    with torch.no_grad():
        value = torch.tensor(policy.value, dtype=state.dtype, device=state.device)
        for operators in batches(n_operators, at_once[0]):
            rows = _rows(operators)
            here = parameters
            if len(operators) < n_operators:
                here = {name: values[rows] for name, values in parameters.items()}
            weights = prepare_weights(here, precision)
            for realisations in batches(n_realisations, at_once[1]):
                members = [
                    (first_operator + operator, realisation)
                    for realisation in realisations
                    for operator in operators
                ]
                source = None if noise is None else NoiseSource(noise, members, state.device)
                start = joined(state[rows][:, _rows(realisations)]).clone()
                buffers = begin(step, weights, value, start, noisy=source is not None)
                look = functools.partial(_look, members) if check else None
                for place, x in _states(buffers, source, n_steps, look, len(operators)):
                    if keep_every is None and place == n_steps:
                        at = 0
                    elif keep_every is not None and place % keep_every == 0:
                        at = place // keep_every
                    else:
                        continue
                    split = split_operators(x, len(operators))
                    # Without the rows that only fill the batch, as twins of the last one.
                    lines, columns = _distinct(operators), _distinct(realisations)
                    split = split[: lines.stop - lines.start, : columns.stop - columns.start]
                    kept[at][lines, columns] = split
    return kept[0] if keep_every is None else kept


def _states(
    buffers: _Buffers,
    source: NoiseSource | None,
    n_steps: int,
    look: Callable[[torch.Tensor, int, int], None] | None,
    n_operators: int,
) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield the number of steps and the state, which is overwritten two steps later."""
    noise = buffers.noise
    drawn = None if noise is None else noise.unflatten(1, (n_operators, -1)).flatten(0, 1)
    looked = 0
    for number in range(n_steps + 1):
        if number:
            if source is not None and drawn is not None:
                source.fill(drawn)
            buffers.steps[(number - 1) % 2]()
        now = buffers.states[number % 2]
        if look is not None and (number % STEPS_PER_LOOK == 0 or number == n_steps):
            look(
                now.unflatten(1, (n_operators, -1)).flatten(0, 1), min(looked + 1, number), number
            )
            looked = number
        yield number, now


def _look(members: list[tuple[int, int]], rows: torch.Tensor, first: int, last: int) -> None:
    """Raise if a row is not finite."""
    # Only a sum of large numbers can be infinite without one of them.
    if rows.sum().isfinite():
        return
    finite = rows.isfinite().flatten(1).all(1)
    if not finite.all():
        operator, realisation = members[int((~finite).nonzero()[0])]
        if last == 0:
            raise FloatingPointError(
                f"realisation {realisation} of operator {operator} is not finite in the state given"
            )
        raise FloatingPointError(
            f"realisation {realisation} of operator {operator} is not finite after a step between "
            f"{first} and {last}; take a smaller value of the policy, a longer precision, or "
            "check=False to keep what there is"
        )


def _distinct(numbers: list[int]) -> slice:
    """Return the numbers of a batch without those that only fill it."""
    return slice(numbers[0], numbers[-1] + 1)


def _rows(numbers: list[int]) -> slice | list[int]:
    """Return the numbers of a batch as an index; one that needs no copy, if it is not filled up."""
    rows = _distinct(numbers)
    return rows if rows.stop - rows.start == len(numbers) else numbers


def batches(total: int, size: int) -> Iterator[list[int]]:
    """Yield batches of equal size; the last one is filled up with its last number.

    Another size would be compiled again.
    """
    for first in range(0, total, size):
        yield [min(number, total - 1) for number in range(first, first + size)]


def batch_sizes(
    total: tuple[int, int],
    bytes_each: int,
    *,
    memory_budget: int | None,
    operators_at_once: int,
) -> tuple[int, int]:
    """Return how many operators and realisations to compute at once.

    Args:
        total: Numbers of operators and realisations.
        bytes_each: Of one realisation of one operator.
        memory_budget: Bytes; ``None``: no limit.
        operators_at_once: Most operators.

    Raises:
        ValueError: If not even one fits.
    """
    n_operators, n_realisations = min(total[0], operators_at_once), total[1]
    if memory_budget is not None:
        n_fit = memory_budget // bytes_each
        if n_fit < 1:
            raise ValueError(
                f"memory_budget must be at least {bytes_each} bytes, what one realisation takes "
                f"here, got {memory_budget}"
            )
        n_realisations = min(n_realisations, n_fit)
        n_operators = min(n_operators, max(1, n_fit // n_realisations))
    # As even as possible, so that little is added to the last batch.
    return (
        math.ceil(total[0] / math.ceil(total[0] / n_operators)),
        math.ceil(total[1] / math.ceil(total[1] / n_realisations)),
    )


def check_policy(policy: Policy | None, noise: StepNoise | None) -> Policy:
    """Return the policy, or the default.

    Raises:
        TypeError: If one is a name or a number in place of what it names.
    """
    if not isinstance(policy, Policy | None):
        raise TypeError(f'policy must be a Policy, such as Policy("residual"), got {policy!r}')
    if not isinstance(noise, StepNoise | None):
        raise TypeError(f"noise must be a StepNoise, such as StepNoise(0.01), got {noise!r}")
    return policy or Policy()


def _check_number(name: str, number: object, least: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {number!r}")


def check_precision(precision: torch.dtype | None, state: torch.Tensor) -> torch.dtype:
    """Return the precision of the operator for a state; ``None``: that of the state.

    Raises:
        ValueError: If it is neither that nor a short one beside a float32 state.
    """
    if precision is None or precision == state.dtype:
        return state.dtype
    if precision not in SHORT or state.dtype != torch.float32:
        raise ValueError(
            "precision must be bfloat16 or float16 with a float32 state, or that of the state, "
            f"got {precision} with a {state.dtype} state"
        )
    return precision
