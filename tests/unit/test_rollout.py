"""The rollout: operators, policies, noise, precision, batches, gradients, profile."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from ivhl import rollout
from ivhl.compile import clear_compile_cache, compile_mode, get_compile_mode
from ivhl.measure.footprint import peak_bytes
from ivhl.rollout import (
    Architecture,
    Policy,
    StepNoise,
    apply_operator,
    evolution,
    evolve,
    make_parameters,
    measure_drift,
    operator,
    profile,
    rollout_loss,
    select_precision,
)
from ivhl.rollout.__main__ import main
from ivhl.rollout.evolution import (
    batch_sizes,
    batches,
    make_next,
    memory_of_sample,
    prepare_weights,
)
from ivhl.rollout.operator import EPS, Boundary, logistic_gelu, norm_by_channel
from ivhl.rollout.policy import update

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from torch import Tensor, fx, nn

    from ivhl.rollout.operator import Activation, Boundary, Norm

pytestmark = [
    pytest.mark.filterwarnings("ignore:Failed to initialize NumPy:UserWarning"),
    pytest.mark.filterwarnings("ignore:Profiler clears events:UserWarning"),
    pytest.mark.filterwarnings("ignore:Warning. Profiler clears events:UserWarning"),
    # Dynamo of 2.6.0 warns so where its settings are copied; the compiler would fail.
    pytest.mark.filterwarnings("ignore:Skipping serialization of skipfiles:UserWarning"),
]

SMALL = Architecture(width=4, depth=2, norm="group", n_groups=2)


def drawn(
    architecture: Architecture, *, n_operators: int = 1, n_realisations: int = 1, n_rows: int = 8
) -> tuple[dict[str, Any], Any]:
    generator = torch.Generator().manual_seed(5)
    parameters = make_parameters(architecture, generator, n_operators=n_operators)
    shape = (n_operators, n_realisations, architecture.n_channels, n_rows, n_rows)
    return parameters, torch.randn(shape, dtype=torch.float64, generator=generator)


def constant(output: float) -> tuple[Architecture, dict[str, Any]]:
    """Return an operator that gives the same number everywhere."""
    architecture = Architecture(n_channels=1, width=1, depth=0, norm="none")
    parameters = make_parameters(architecture, torch.Generator().manual_seed(0))
    parameters = {name: torch.zeros_like(values) for name, values in parameters.items()}
    parameters["last.shift"] += output
    return architecture, {name: values.float() for name, values in parameters.items()}


def write_modules(architecture: Architecture, weights: dict[str, Any], x: Tensor) -> Tensor:
    """Return the output of the network out of modules, as PyTorch users write it."""
    activate = torch.nn.GELU(
        approximate="tanh" if architecture.activation == "gelu-tanh" else "none"
    )

    def convolution(name: str) -> nn.Module:
        weight = weights[name]
        mode = {"zeros": "zeros", "periodic": "circular"}[architecture.boundary]
        made = torch.nn.Conv2d(
            *(weight.shape[1], weight.shape[0], weight.shape[-1]),
            padding=weight.shape[-1] // 2, padding_mode=mode, bias=False, dtype=weight.dtype,
        )  # fmt: skip
        made.weight.data.copy_(weight)
        return made

    def layer(name: str) -> nn.Module:
        made = convolution(name)
        if architecture.norm == "none":
            return made
        n_channels = made.out_channels
        if architecture.norm == "instance":
            norm = torch.nn.InstanceNorm2d(n_channels, affine=True, dtype=torch.float64)
        else:
            norm = torch.nn.GroupNorm(architecture.n_groups, n_channels, dtype=torch.float64)
        norm.weight.data.copy_(weights[f"{name}.gain"])
        norm.bias.data.copy_(weights[f"{name}.shift"])
        return torch.nn.Sequential(made, norm)

    h = activate(layer("stem")(x))
    for number in range(architecture.depth):
        block = f"block{number}"
        project = f"{block}.project"
        kept = convolution(project)(h) if project in weights else h
        h = activate(kept + layer(f"{block}.second")(activate(layer(f"{block}.first")(h))))
    return convolution("last")(h) + weights["last.shift"][:, None, None]


def test_every_public_name_is_there_and_nothing_else() -> None:
    assert sorted(rollout._MODULES) == sorted(rollout.__all__)
    assert all(callable(getattr(rollout, name)) for name in rollout.__all__)
    with pytest.raises(AttributeError, match=r"'ivhl\.rollout' has no attribute 'nothing'"):
        rollout.nothing  # noqa: B018  (looking it up is what is tested)


def test_the_defaults_are_the_network_of_the_original() -> None:
    # 2,405,699 weights, and 393.7 GFLOP for five realisations of 128 x 128.
    architecture = Architecture()
    assert architecture.n_weights == 2_405_699
    drawn_here = make_parameters(architecture, torch.Generator().manual_seed(0))
    assert sum(values.numel() for values in drawn_here.values()) == 2_405_699
    kernels = sum(values.numel() for values in drawn_here.values() if values.ndim > 2)
    assert 2.0 * kernels * 5 * 128**2 == pytest.approx(393.7e9, rel=1e-3)


@settings(max_examples=12, deadline=None)
@given(
    norm=st.sampled_from(["instance", "group", "none"]),
    activation=st.sampled_from(["gelu", "gelu-tanh"]),
    boundary=st.sampled_from(["zeros", "periodic"]),
    depth=st.integers(0, 3),
    n_operators=st.integers(1, 3),
)
def test_joined_operators_compute_what_modules_compute_one_by_one(
    norm: Norm, activation: Activation, boundary: Boundary, depth: int, n_operators: int
) -> None:
    architecture = Architecture(
        width=4, depth=depth, norm=norm, n_groups=2, activation=activation, boundary=boundary
    )
    parameters, state = drawn(architecture, n_operators=n_operators, n_realisations=2)
    found = apply_operator(architecture, parameters, state)
    for number in range(n_operators):
        weights = {name: values[number] for name, values in parameters.items()}
        with torch.no_grad():
            expected = write_modules(architecture, weights, state[number])
        assert torch.allclose(found[number], expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("boundary", ["zeros", "periodic"])
def test_channels_last_change_no_number(
    monkeypatch: pytest.MonkeyPatch, boundary: Boundary
) -> None:
    """What is compiled for several operators on a GPU, here on a CPU."""
    architecture = Architecture(width=8, depth=2, boundary=boundary)
    generator = torch.Generator().manual_seed(0)
    parameters = make_parameters(architecture, generator, n_operators=3)
    state = torch.randn(3, 2, 3, 8, 8, dtype=torch.float64, generator=generator)
    expected = apply_operator(architecture, parameters, state)
    asked: list[int] = []

    def keeps(_weight: torch.Tensor, n_operators: int) -> bool:
        asked.append(n_operators)
        return True

    monkeypatch.setattr(operator, "_keeps_channels_last", keeps)
    torch.testing.assert_close(apply_operator(architecture, parameters, state), expected)
    assert asked == [3]


@pytest.mark.parametrize("compiling", [True, False])
def test_channels_are_last_in_grouped_convolutions_compiled_for_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
    compiling: bool,  # noqa: FBT001
) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: compiling)

    def keeps(n_operators: int, kind: str, dtype: torch.dtype) -> bool:
        weight: Any = SimpleNamespace(device=SimpleNamespace(type=kind), dtype=dtype)
        return operator._keeps_channels_last(weight, n_operators)

    assert keeps(2, "cuda", torch.float32) is compiling
    assert not keeps(1, "cuda", torch.float32)
    assert not keeps(2, "cpu", torch.float32)
    assert not keeps(2, "cuda", torch.bfloat16)


def test_a_group_norm_is_another_model_than_an_instance_norm() -> None:
    kind: Any
    outputs = []
    for kind, n_groups in (("instance", 1), ("group", 4), ("group", 2)):
        architecture = Architecture(width=4, depth=0, norm=kind, n_groups=n_groups)
        outputs.append(apply_operator(architecture, *drawn(architecture)))
    instance, as_many_groups, fewer_groups = outputs
    assert torch.allclose(instance, as_many_groups, atol=1e-12)
    assert float((instance - fewer_groups).abs().max()) > 0.1


def test_the_gelu_by_tanh_is_near_the_exact_one_and_not_equal() -> None:
    exact, short = (
        apply_operator(a, *drawn(a))
        for a in (Architecture(width=4), Architecture(width=4, activation="gelu-tanh"))
    )
    assert 0.0 < float((exact - short).abs().max()) < 0.05


def test_the_logistic_form_of_the_gelu_by_tanh_is_the_same_function() -> None:
    x = torch.linspace(-30.0, 30.0, 2001, dtype=torch.float64)
    expected = torch.nn.functional.gelu(x, approximate="tanh")
    assert torch.allclose(logistic_gelu(x), expected, rtol=1e-12, atol=1e-15)


@given(
    size=st.integers(1, 5),
    n_groups=st.integers(1, 5),
    offset=st.sampled_from([0.0, 100.0]),
    seed=st.integers(0, 1000),
)
def test_the_norm_by_channels_is_the_group_norm(
    size: int, n_groups: int, offset: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    n_channels = size * n_groups
    x = offset + torch.randn(2, n_channels, 3, 4, dtype=torch.float64, generator=generator)
    gain, shift = torch.randn(2, n_channels, dtype=torch.float64, generator=generator)
    expected = torch.nn.functional.group_norm(x, n_groups, gain, shift, eps=EPS)
    assert torch.allclose(norm_by_channel(x, n_groups, gain, shift), expected, atol=1e-9)
    single = norm_by_channel(x.float(), n_groups, gain.float(), shift.float())
    assert torch.allclose(single.double(), expected, atol=1e-6 * (1.0 + 40.0 * offset))


def test_the_policies_are_what_the_original_computes() -> None:
    state, output = torch.tensor([2.0, -1.0]), torch.tensor([10.0, 4.0])
    quarter = torch.tensor(0.25)
    assert update("autoregressive", state, output, quarter).tolist() == [10.0, 4.0]
    assert update("residual", state, output, quarter).tolist() == [4.5, 0.0]
    # alpha * state + (1 - alpha) * output; the strategy document has it the other way round.
    assert update("convex", state, output, quarter).tolist() == [8.0, 2.75]


@pytest.mark.parametrize("large", [1.0, 1e9, 1e30])
def test_the_ends_of_the_convex_policy_are_exact_however_large_the_output(large: float) -> None:
    state, output = torch.tensor([0.3, -1.7]), torch.tensor([large, 0.7 * large])
    assert torch.equal(update("convex", state, output, torch.tensor(1.0)), state)
    assert torch.equal(update("convex", state, output, torch.tensor(0.0)), output)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.0, 1.0), st.integers(0, 2**31))
def test_the_convex_policy_stays_between_state_and_output(alpha: float, seed: int) -> None:
    state, output = torch.randn(
        2, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    found = update("convex", state, output, torch.tensor(alpha, dtype=torch.float64))
    assert bool((found <= torch.maximum(state, output) + 1e-12).all())
    assert bool((found >= torch.minimum(state, output) - 1e-12).all())


def test_a_convex_policy_of_1_keeps_the_state_and_of_0_is_autoregressive() -> None:
    parameters, state = drawn(SMALL)
    run: dict[str, Any] = {"compiled": False, "n_steps": 3}
    kept = evolve(SMALL, parameters, state, policy=Policy("convex", 1.0), **run)
    assert torch.allclose(kept, state, atol=1e-12)
    replaced = evolve(SMALL, parameters, state, policy=Policy("convex", 0.0), **run)
    other = evolve(SMALL, parameters, state, policy=Policy("autoregressive"), **run)
    assert torch.allclose(replaced, other, atol=1e-12)


def test_steps_follow_one_another_and_the_initial_state_is_left_alone() -> None:
    parameters, state = drawn(SMALL, n_operators=2, n_realisations=2)
    before = state.clone()
    kept = evolve(
        SMALL, parameters, state, 5, policy=Policy("residual", 0.1), keep_every=2, compiled=False
    )
    assert torch.equal(state, before)
    assert kept.shape == (3, *state.shape)
    x = state
    for number in range(1, 5):
        x = x + 0.1 * apply_operator(SMALL, parameters, x)
        if number % 2 == 0:
            assert torch.allclose(kept[number // 2], x, atol=1e-12)
    assert torch.equal(kept[0], state)


def test_a_state_in_bfloat16_would_stand_still_and_is_refused() -> None:
    # 1 + 0.01 * 0.1 is 1 in bfloat16, at every one of 500 steps.
    short = torch.ones(1, dtype=torch.bfloat16)
    for _ in range(500):
        short = short + 0.01 * torch.full_like(short, 0.1)
    assert float(short) == 1.0
    architecture, parameters = constant(0.1)
    state = torch.ones(1, 1, 1, 4, 4)
    end = evolve(
        *(architecture, parameters, state, 500),
        policy=Policy("residual", 0.01), precision=torch.bfloat16, compiled=False,
    )  # fmt: skip
    assert end.dtype == torch.float32
    assert torch.allclose(end, torch.full_like(end, 1.5), atol=1e-3)
    with pytest.raises(ValueError, match="increments smaller than its spacing would be lost"):
        evolve(architecture, parameters, state.bfloat16(), 1)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_the_operator_runs_in_a_short_precision_and_the_drift_says_how_far_off(
    precision: torch.dtype,
) -> None:
    architecture = Architecture(width=4, depth=1)
    parameters, state = drawn(architecture)
    single, short = measure_drift(
        *(architecture, parameters, state, 8),
        precisions=(torch.float32, precision), every=4, compiled=False, noise=StepNoise(0.01),
    )  # fmt: skip
    assert single.steps == short.steps == (0, 4, 8)
    assert single.relative[0] == short.relative[0] == 0.0
    assert 0.0 < single.relative[2] < 1e-5 < short.relative[2] < 0.05
    assert short.relative[1] < short.relative[2]
    assert short.largest[2] > single.largest[2] > 0.0


def test_a_field_that_is_the_same_everywhere_has_no_drift_where_nothing_differs() -> None:
    architecture = Architecture(width=4, depth=1)
    parameters, state = drawn(architecture)
    (drift,) = measure_drift(
        *(architecture, parameters, torch.ones_like(state), 2),
        precisions=[torch.bfloat16], compiled=False,
    )  # fmt: skip
    assert drift.relative[0] == drift.largest[0] == 0.0
    assert drift.relative[2] > 0.0


@pytest.mark.parametrize(("name", "given"), [("policy", "residual"), ("noise", 0.01)])
def test_a_name_or_a_number_for_policy_or_noise_is_refused(name: str, given: object) -> None:
    architecture = Architecture(width=4, depth=1)
    parameters, state = drawn(architecture)
    options: dict[str, Any] = {name: given, "compiled": False}
    with pytest.raises(TypeError, match=f"{name} must be a .*, such as .*, got {given!r}"):
        evolve(architecture, parameters, state, 1, **options)
    with pytest.raises(TypeError, match=f"{name} must be a .*, such as .*, got {given!r}"):
        rollout_loss(architecture, parameters, state, state[None], **options)


def test_the_precision_is_chosen_by_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert select_precision("cpu") in (torch.float32, torch.bfloat16)
    monkeypatch.setattr("ivhl.rollout.precision.autocast_dtype", lambda _: None)
    assert select_precision("cpu") is torch.float32


def test_noise_does_not_depend_on_batches_and_each_member_has_its_own() -> None:
    architecture, parameters = constant(0.0)
    parameters = {
        name: values.repeat(3, *[1] * (values.ndim - 1)) for name, values in parameters.items()
    }
    state = torch.zeros(3, 2, 1, 4, 4)
    run: dict[str, Any] = {
        "noise": StepNoise(1.0, seed=7),
        "policy": Policy("residual", 1.0),
        "compiled": False,
    }
    one, three = (
        evolve(architecture, parameters, state, 4, operators_at_once=n, **run) for n in (1, 3)
    )
    assert torch.equal(one, three)
    assert len({tuple(row.flatten().tolist()) for row in one.flatten(0, 1)}) == 6
    later = evolve(
        architecture, {n: v[:1] for n, v in parameters.items()}, state[:1], 4,
        first_operator=2, **run,
    )  # fmt: skip
    assert torch.equal(later[0], one[2])
    assert float(one.std()) == pytest.approx(2.0, rel=0.25)  # of four steps


@pytest.mark.parametrize("usual", [torch.float64, torch.bfloat16])
def test_noise_does_not_depend_on_the_default_dtype(usual: torch.dtype) -> None:
    parameters, state = drawn(SMALL)
    run: dict[str, Any] = {"noise": StepNoise(0.5, seed=1), "compiled": False}
    expected = evolve(SMALL, parameters, state, 2, **run)
    before = torch.get_default_dtype()
    torch.set_default_dtype(usual)
    try:
        found = evolve(SMALL, parameters, state, 2, **run)
    finally:
        torch.set_default_dtype(before)
    assert torch.equal(found, expected)


@pytest.mark.full
def test_compiled_and_eager_have_the_same_noise_and_another_number_is_not_another_graph() -> None:
    parameters, state = drawn(SMALL, n_realisations=2)
    single, start = {n: v.float() for n, v in parameters.items()}, state.float()
    counted = []

    def counting(graph: fx.GraphModule, _inputs: list[Tensor]) -> Any:  # noqa: ANN401
        counted.append(graph)
        return graph.forward

    for kind in ("residual", "convex"):
        following = make_next(SMALL, kind)
        compiled = torch.compile(following, backend=counting, fullgraph=True, dynamic=False)
        for number in (0.1, 0.2, 0.3):
            noise = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
            inputs = prepare_weights(single, torch.float32), start[0], torch.tensor(number), noise
            # Near: compiled code has the group norm in another form.
            assert torch.allclose(compiled(*inputs), following(*inputs), atol=1e-5)
    assert len(counted) == 2
    run: dict[str, Any] = {"noise": StepNoise(0.5, seed=3), "policy": Policy("residual", 0.1)}
    eager, inductor = (
        evolve(SMALL, single, start, 5, compiled=compiled, **run) for compiled in (False, True)
    )
    assert torch.allclose(eager, inductor, atol=2e-5)
    assert not torch.allclose(eager, evolve(SMALL, single, start, 5, compiled=False), atol=2e-5)


class Graphs:
    """Replaces ``capture`` on a CPU: a replay computes anew in the memory captured."""

    def __init__(self) -> None:
        self.captured: list[Callable[[], object]] = []
        self.modes: list[str | None] = []

    def __call__(
        self, *runs: Callable[[], object], device: torch.device
    ) -> list[Callable[[], object]]:
        """Replace ``capture``."""
        self.modes += [get_compile_mode(device)]
        for run in runs:
            run()
        self.captured += runs
        return [partial(self._replay, run) for run in runs]

    @staticmethod
    def _replay(run: Callable[[], object]) -> None:
        # What runs in inference mode or not was decided when the graph was captured.
        with torch.inference_mode(mode=False), torch.no_grad(), compile_mode(None):
            run()


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Graphs]:
    """Evolve on the CPU as on a GPU with CUDA graphs."""
    found = Graphs()
    clear_compile_cache()
    monkeypatch.setattr(evolution, "_replays_graphs", lambda _device: True)
    monkeypatch.setattr(evolution, "capture", found)
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda _device: SimpleNamespace(cuda_stream=0)
    )
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    with compile_mode("reduce-overhead"):
        yield found
    clear_compile_cache()


EVOLUTIONS: list[dict[str, Any]] = [
    {},
    {"n_steps": 0, "keep_every": 1},
    {"noise": StepNoise(0.1, seed=3), "keep_every": 1},
    {"noise": StepNoise(0.1, seed=3), "keep_every": 5, "operators_at_once": 3},
    {"operators_at_once": 2, "policy": Policy("autoregressive"), "keep_every": 3},
    {
        "noise": StepNoise(0.1),
        "policy": Policy("convex", 0.3),
        "memory_budget": 4 * memory_of_sample(SMALL, 8, 8, dtype=torch.float64),
        "operators_at_once": 3,
        "check": False,
    },
]


def test_cuda_graphs_are_replayed_on_a_gpu_in_modes_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    capturing = False
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    gpu = torch.device("cuda", 1)
    for mode in ("reduce-overhead", "max-autotune"):
        with compile_mode(mode):
            assert evolution._replays_graphs(gpu)
            assert not evolution._replays_graphs(torch.device("cpu"))
    for other in ("default", "max-autotune-no-cudagraphs", None):
        with compile_mode(other):
            assert not evolution._replays_graphs(gpu)
    capturing = True  # by the caller: a graph has no other graph in it
    with compile_mode("reduce-overhead"):
        assert not evolution._replays_graphs(gpu)


@pytest.mark.parametrize("run", EVOLUTIONS)
def test_cuda_graphs_of_two_steps_take_turns(run: dict[str, Any], graphs: Graphs) -> None:
    parameters, state = drawn(SMALL, n_operators=3, n_realisations=5)
    before = state.clone()
    run = {"n_steps": 18, **run}  # past the first look for NaN
    for _ in range(2):
        found = evolve(SMALL, parameters, state, **run)
        assert torch.equal(found, evolve(SMALL, parameters, state, compiled=False, **run))
        assert torch.equal(state, before)
    # All batches of both calls have the same shapes.
    assert len(graphs.captured) == (2 if run["n_steps"] else 0)
    assert graphs.modes == (["default"] if run["n_steps"] else [])


def test_a_state_of_a_cuda_graph_that_is_not_finite_is_named(graphs: Graphs) -> None:
    architecture, parameters = constant(math.inf)
    with pytest.raises(FloatingPointError, match="not finite after a step between 1 and 16"):
        evolve(architecture, parameters, torch.zeros(1, 1, 1, 4, 4), 20)
    assert len(graphs.captured) == 2


def test_other_values_are_not_captured_again(graphs: Graphs) -> None:
    kept = []  # so that no two calls have weights at the same address
    for number in range(4):
        parameters, state = drawn(SMALL, n_realisations=2)
        single = {n: v.float() * (1.0 + number) for n, v in parameters.items()}
        kept.append((single, {n: v.clone() for n, v in single.items()}))
        run: dict[str, Any] = {
            "precision": torch.bfloat16,
            "policy": Policy("residual", 0.1 + number),
            "noise": StepNoise(0.1, seed=number),
        }
        # What is kept from inference mode must not be locked outside of it.
        with torch.inference_mode(mode=number % 2 == 0):
            found = evolve(SMALL, single, state.float(), 3, **run)
        expected = evolve(SMALL, single, state.float(), 3, compiled=False, **run)
        assert torch.equal(found, expected)
    assert len(graphs.captured) == 2
    assert all(torch.equal(now[n], then[n]) for now, then in kept for n in now)
    clear_compile_cache()
    assert evolution._held == {}


def test_what_chooses_other_kernels_is_captured_again(
    graphs: Graphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters, state = drawn(SMALL)
    run = partial(evolve, SMALL, parameters, state, 1)
    counts = [len(graphs.captured)]

    def again(**options: Any) -> bool:  # noqa: ANN401
        run(**options)
        run(**options)
        counts.append(len(graphs.captured))
        return counts[-1] == counts[-2] + 2

    assert again()
    assert again(noise=StepNoise(0.1))
    assert again(policy=Policy("convex"))
    with compile_mode("max-autotune"):
        assert again()
    assert graphs.modes[-1] == "max-autotune-no-cudagraphs"
    # Dynamo guards on none of cuDNN's, and a graph is replayed without guards anyway.
    for name in ("allow_tf32", "benchmark", "deterministic"):
        monkeypatch.setattr(torch.backends.cudnn, name, not getattr(torch.backends.cudnn, name))
        assert again(), name
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest" if precision != "highest" else "high")
    try:
        assert again()
    finally:
        torch.set_float32_matmul_precision(precision)
    run()
    captured = len(graphs.captured)
    with ThreadPoolExecutor(1) as pool:

        def elsewhere() -> None:
            with compile_mode("reduce-overhead"):
                run()

        pool.submit(elsewhere).result()
    assert len(graphs.captured) == captured + 2


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 50), st.integers(1, 40))
def test_batches_cover_everything_in_equal_sizes_within_the_budget(
    n_operators: int, n_realisations: int, n_fit: int, at_once: int
) -> None:
    sizes = batch_sizes(
        (n_operators, n_realisations), 100, memory_budget=100 * n_fit, operators_at_once=at_once
    )
    assert sizes[0] * sizes[1] <= n_fit
    assert sizes[0] <= at_once
    for total, size in zip((n_operators, n_realisations), sizes, strict=True):
        found = list(batches(total, size))
        assert {len(one) for one in found} == {size}
        assert sorted({number for one in found for number in one}) == list(range(total))
        assert len(found) * size < total + size


def test_a_memory_budget_changes_batches_and_nothing_else() -> None:
    parameters, state = drawn(SMALL, n_operators=3, n_realisations=5)
    run: dict[str, Any] = {"noise": StepNoise(0.1), "compiled": False, "operators_at_once": 3}
    each = memory_of_sample(SMALL, 8, 8, dtype=torch.float64)
    whole = evolve(SMALL, parameters, state, 3, **run)
    parts = evolve(SMALL, parameters, state, 3, memory_budget=4 * each, **run)
    assert torch.allclose(whole, parts, atol=1e-12)
    with pytest.raises(ValueError, match=f"memory_budget must be at least {each} bytes"):
        evolve(SMALL, parameters, state, 3, memory_budget=each - 1, **run)


@pytest.mark.parametrize("norm", ["instance", "group"])
def test_a_step_takes_no_more_memory_than_is_promised(norm: Norm) -> None:
    architecture = Architecture(width=8, depth=3, norm=norm)
    parameters, state = drawn(architecture, n_realisations=2, n_rows=16)
    weights = prepare_weights({n: v.float() for n, v in parameters.items()}, torch.float32)
    following = make_next(architecture, "residual")
    x, value = state[0].float(), torch.tensor(0.1)
    with torch.no_grad():
        peak = peak_bytes(lambda: following(weights, x, value), torch.device("cpu"))
    assert peak is not None
    assert 0.4 * 2 * memory_of_sample(architecture, 16, 16) < peak
    assert peak <= 2 * memory_of_sample(architecture, 16, 16)


def test_an_operator_that_diverges_is_named_and_can_be_kept() -> None:
    architecture, parameters = constant(0.0)
    parameters = {n: v.repeat(2, *[1] * (v.ndim - 1)) for n, v in parameters.items()}
    parameters["last.shift"][1] = math.inf
    state = torch.zeros(2, 1, 1, 4, 4)
    with pytest.raises(FloatingPointError, match="realisation 0 of operator 8 is not finite"):
        evolve(architecture, parameters, state, 20, first_operator=7, compiled=False)
    bad = state.clone()
    bad[1, 0, 0, 2, 2] = math.nan
    with pytest.raises(FloatingPointError, match="operator 1 is not finite in the state given"):
        evolve(architecture, parameters, bad, 20, compiled=False)
    kept = evolve(architecture, parameters, state, 20, check=False, compiled=False)
    assert bool(kept[0].isfinite().all())
    assert not bool(kept[1].isfinite().any())


def test_no_gradient_is_recorded_while_evolving() -> None:
    parameters, state = drawn(SMALL)
    for values in parameters.values():
        values.requires_grad_()
    assert not evolve(SMALL, parameters, state, 2, compiled=False).requires_grad


def test_checkpoints_change_the_memory_of_training_and_not_its_gradients() -> None:
    parameters, state = drawn(SMALL, n_operators=2)
    for values in parameters.values():
        values.requires_grad_()
    targets = torch.zeros(4, *state.shape, dtype=torch.float64)
    found = []
    for checkpointed in (True, False):
        saved: dict[int, int] = {}

        def keep(tensor: Tensor, saved: dict[int, int] = saved) -> Tensor:
            saved[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = rollout_loss(
                SMALL, parameters, state, targets, noise=StepNoise(0.1), checkpointed=checkpointed
            )
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        found.append((loss.item(), gradients, sum(saved.values())))
    (with_loss, with_gradients, with_bytes), (loss, gradients, all_bytes) = found
    assert with_loss == loss
    for one, other in zip(with_gradients, gradients, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-12)
    assert with_bytes < 0.3 * all_bytes


def test_the_loss_of_training_is_that_of_the_evolved_states() -> None:
    parameters, state = drawn(SMALL, n_operators=2)
    targets = torch.randn(3, *state.shape, dtype=torch.float64)
    run: dict[str, Any] = {"noise": StepNoise(0.1), "policy": Policy("convex", 0.3)}
    kept = evolve(SMALL, parameters, state, 3, keep_every=1, compiled=False, **run)
    expected = (kept[1:] - targets).square().mean()
    loss = rollout_loss(SMALL, parameters, state, targets, **run)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("command", ["generate --operators 1 --out d", "profile"])
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--device cuda", "--device cuda: this PyTorch sees no GPU"),
        (
            "--device foo",
            "--device must be one that PyTorch knows, such as cpu or cuda:0, got ",
        ),
        ("--device meta", "--device meta: PyTorch cannot compute there: "),
        ("--threads 0", "argument --threads: must be a whole number from 1 to 32768"),
        ("--memory nan", "argument --memory: must be a finite number above 0"),
        ("--memory inf", "argument --memory: must be a finite number above 0"),
    ],
)
def test_a_device_or_a_number_that_cannot_be_is_the_users_mistake(
    command: str,
    arguments: str,
    says: str,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    code: object
    try:
        code = main([*command.split(), *arguments.split()])
    except SystemExit as usage:  # of argparse, which prints what it takes
        code = usage.code
    told = capsys.readouterr().err
    assert code == 2
    assert says in told
    assert "next: leave out --device to compute on cpu" in told or "usage: " in told
    assert not [*tmp_path.iterdir()]


def test_the_profile_names_five_kernels_and_their_shares() -> None:
    architecture = Architecture(width=8, depth=1)
    parameters, state = drawn(architecture, n_rows=16)
    found = profile(architecture, parameters, state, 2, compiled=False)
    assert len(found) == 5
    assert [k.seconds for k in found] == sorted((k.seconds for k in found), reverse=True)
    assert 0.0 < sum(kernel.share for kernel in found) <= 1.0 + 1e-9
    everything = profile(architecture, parameters, state, 2, n_kernels=1000, compiled=False)
    assert sum(kernel.share for kernel in everything) == pytest.approx(1.0)
    (convolution,) = (k for k in everything if k.name == "aten::conv2d")
    assert convolution.calls == 2 * 4  # in each step the stem, a block of two, the last layer


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"norm": "batch"}, "norm must be one of instance, group, none, got 'batch'"),
        ({"activation": "relu"}, "activation must be one of gelu, gelu-tanh"),
        ({"boundary": "open"}, "boundary must be one of zeros, periodic"),
        ({"width": 0}, "width must be an integer of at least 1, got 0"),
        ({"depth": -1}, "depth must be an integer of at least 0, got -1"),
        ({"width": 6, "norm": "group", "n_groups": 4}, "n_groups must divide width, 6"),
    ],
)
def test_a_wrong_architecture_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Architecture(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("additive",), "the policy must be one of autoregressive, residual, convex"),
        (("convex", 1.5), r"must be in \[0, 1\], got 1.5"),
        (("residual", math.nan), "must be finite"),
        (("residual", "fast"), "must be a number, got 'fast'"),
        (("convex", [0.5]), r"must be a number, got \[0.5\]"),
        (("autoregressive", 0.5), "has no value"),
    ],
)
def test_a_wrong_policy_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Policy(*arguments)


def test_wrong_arguments_are_refused_with_what_was_expected() -> None:
    parameters, state = drawn(SMALL, n_operators=2)
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (state[0], {}, r"must have shape \[2, n_realisations, 3, height, width\]"),
        (state.float(), {}, "parameters must be torch.float32 on cpu like the state"),
        (state, {"precision": torch.bfloat16}, "with a float32 state"),
        (state, {"keep_every": 0}, "keep_every must be an integer of at least 1, got 0"),
        (state, {"keep_every": 1.5}, "keep_every must be an integer of at least 1, got 1.5"),
    ]
    for name, least in {"operators_at_once": 1, "first_operator": 0, "memory_budget": 0}.items():
        message = f"{name} must be an integer of at least {least}, got"
        wrong += [(state, {name: n}, message) for n in (least - 1, 1.5, True, "1G", math.nan)]
    for given_state, options, message in wrong:
        with pytest.raises(ValueError, match=message):
            evolve(SMALL, parameters, given_state, 1, **options)
    for n_steps in (2.5, -1, "3", None):
        with pytest.raises(ValueError, match="n_steps must be an integer of at least 0, got"):
            evolve(SMALL, parameters, state, n_steps)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n_kernels must not be negative, got -1"):
        profile(SMALL, parameters, state, n_kernels=-1)
    del parameters["last"]
    with pytest.raises(ValueError, match=r"missing \['last'\]"):
        evolve(SMALL, parameters, state, 1)
    with pytest.raises(ValueError, match="scale of noise must be finite"):
        StepNoise(-1.0)
    for seed in (None, True, 1.0, torch.tensor(1)):
        with pytest.raises(ValueError, match="seed of noise must be an int, got"):
            StepNoise(0.1, seed)  # type: ignore[arg-type]


def test_all_functions_refuse_weights_and_precisions_that_do_not_fit_the_state() -> None:
    parameters, state = drawn(SMALL)
    short, targets = state.float(), torch.zeros(1, *state.shape)
    single = {name: values.float() for name, values in parameters.items()}
    says = "parameters must be torch.float32 on cpu like the state, got torch.float64"
    with pytest.raises(ValueError, match=says):
        apply_operator(SMALL, parameters, short)
    with pytest.raises(ValueError, match=says):
        evolve(SMALL, parameters, short, 1)
    with pytest.raises(ValueError, match=says):
        rollout_loss(SMALL, parameters, short, targets)
    # These were taken for float32 without a word.
    for precision in (torch.float64, torch.int32):
        with pytest.raises(
            ValueError, match="precision must be bfloat16 or float16 with a float32"
        ):
            rollout_loss(SMALL, single, short, targets, precision=precision)
    with pytest.raises(ValueError, match=r"got torch\.bfloat16 with a torch\.float64 state"):
        rollout_loss(SMALL, parameters, state, targets, precision=torch.bfloat16)
    with pytest.raises(ValueError, match=r"targets must be torch\.float64 on cpu like the state"):
        rollout_loss(SMALL, parameters, state, targets)
    assert rollout_loss(SMALL, parameters, state, targets.double()).dtype == torch.float64


# Dynamo reads it of every input of a graph, states between two steps included.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_compiled_training_step_has_the_gradient_of_the_eager_one() -> None:
    architecture = Architecture(width=2, depth=0, norm="none")
    parameters, state = drawn(architecture, n_rows=4)
    leaves = {n: v.float().requires_grad_() for n, v in parameters.items()}
    targets = torch.zeros(2, *state.shape)
    gradients = [
        torch.autograd.grad(
            rollout_loss(architecture, leaves, state.float(), targets, compiled=compiled),
            list(leaves.values()),
        )
        for compiled in (False, True)
    ]
    for eager, compiled in zip(*gradients, strict=True):
        assert torch.allclose(eager, compiled, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_training_compiles_a_step_once_for_all_calls() -> None:
    architecture = Architecture(width=2, depth=0, norm="group", n_groups=1)
    parameters, state = drawn(architecture, n_rows=4)
    leaves = {n: v.float().requires_grad_() for n, v in parameters.items()}
    targets = torch.zeros(1, *state.shape)
    seen = []
    for _ in range(3):
        rollout_loss(architecture, leaves, state.float(), targets, compiled=True).backward()
        seen.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert seen[0] == seen[2]
    assert seen[0] > 0
