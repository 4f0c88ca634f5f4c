"""What runs on a GPU only: CUDA graphs, events, kernels, FP8, and all systems on a device.

``nox -s gpu`` runs it. Everything is skipped where PyTorch sees no GPU.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)

from ivhl import hotpath
from ivhl.compile import compile_mode, get_compiled
from ivhl.device import autocast_dtype, compute_capability, get_device
from ivhl.machine.gpu import free_bytes, query_gpus
from ivhl.measure.calibration import calibrate
from ivhl.measure.engine import capture
from ivhl.measure.footprint import count_kernels, peak_bytes
from ivhl.measure.timing import FULL, block_length, time_block
from ivhl.mlff import energy_forces, painn
from ivhl.mlff.parameters import cast_parameters
from ivhl.rollout import Architecture, Policy, StepNoise, evolve, make_parameters
from ivhl.surgical import Fp8Linear, StackConfiguration, TransformerStack, fp8_kernel, fp8_step
from ivhl.surgical.fp8 import FP8_CAPABILITY
from ivhl.surgical.operations import make_angles, rotate
from ivhl.surgical.stack import make_weights

if TYPE_CHECKING:
    from ivhl.rollout.operator import Norm
    from ivhl.surgical.plan import Compiler

# PyTorch's own: of each first CUDA graph, and while it times kernels for ``max-autotune``.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning"),
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning"),
    # Once per process, of the first graph with a float32 matrix multiplication: of whichever test.
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores for float32:UserWarning"),
]

GPU = torch.device("cuda", torch.cuda.current_device())
HAS_FP8 = (compute_capability(GPU) or (0, 0)) >= FP8_CAPABILITY


def drawn(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(GPU)


def three_operations(x: torch.Tensor) -> torch.Tensor:
    return (x * 2.0).sin() + 1.0


def test_the_gpu_is_found_and_its_free_memory_is_known() -> None:
    assert get_device() == GPU
    assert autocast_dtype() in (torch.bfloat16, torch.float16)
    assert query_gpus()[0]["name"] in torch.cuda.get_device_name(GPU)
    assert 0 < free_bytes() <= torch.cuda.get_device_properties(GPU).total_memory


def test_a_captured_graph_computes_new_inputs_into_the_same_memory() -> None:
    graph = capture(three_operations, (drawn(64),))
    first = graph(drawn(64, seed=2))
    torch.testing.assert_close(first, three_operations(drawn(64, seed=2)))
    second = graph(drawn(64, seed=3))
    assert first.data_ptr() == second.data_ptr()
    torch.testing.assert_close(second, three_operations(drawn(64, seed=3)))


def test_kernels_are_counted_also_in_a_cuda_graph() -> None:
    x = drawn(1024, 1024)
    eager, seconds = count_kernels(lambda: three_operations(x), GPU)
    assert eager == 3
    assert seconds > 0.0
    compiled = torch.compile(three_operations)
    assert count_kernels(lambda: compiled(x), GPU)[0] == 1
    graph = capture(three_operations, (x,))
    assert count_kernels(lambda: graph(x), GPU)[0] == 4  # and the copy of the input


def test_a_call_is_timed_by_events_and_not_by_its_launch() -> None:
    x = drawn(4096, 4096)
    slow = time_block(lambda: x @ x, 3, "cuda_event")
    quick = time_block(lambda: x[:64] @ x[:, :64], 3, "cuda_event")
    assert slow.seconds > quick.seconds > 0.0
    assert block_length(lambda: x[:64] @ x[:, :64], "cuda_event", FULL.block_s) > 1


def test_the_peak_of_a_call_is_what_it_allocates() -> None:
    x = drawn(1024, 1024)
    assert peak_bytes(lambda: x + 1.0, GPU) == x.numel() * 4
    assert all(seconds > 0.0 for seconds in calibrate(GPU).values())


def test_results_of_a_compiled_function_outlive_its_next_call() -> None:
    compiled = get_compiled(three_operations, mode="reduce-overhead")
    kept = [compiled(drawn(64, seed=seed)) for seed in range(1, 6)]
    for seed, result in enumerate(kept, 1):
        torch.testing.assert_close(result, three_operations(drawn(64, seed=seed)))


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adam"])
def test_a_hot_training_loop_gives_what_eager_code_gives(kind: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    first = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)
    ).to(GPU)
    second = copy.deepcopy(first)
    x, y = drawn(16, 32), drawn(16, 8, seed=2)

    def optimizer_of(model: torch.nn.Module) -> torch.optim.Optimizer:
        if kind == "adam":
            return torch.optim.Adam(model.parameters(), lr=0.01)
        momentum = 0.9 if kind == "momentum" else 0.0
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=momentum)

    def train(model: torch.nn.Module, steps: int) -> list[float]:
        optimizer = optimizer_of(model)
        losses = []
        for _ in range(steps):
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
        return losses

    expected = train(first, 30)
    with hotpath.auto(threshold=5) as report:
        found = train(second, 30)
    assert found == pytest.approx(expected, rel=1e-4)
    assert sum(path.hits for path in report.paths) > 0, str(report)


def test_calls_of_a_block_stay_on_their_stream() -> None:
    """What waits must run before the stream changes, and before an event that stands behind it."""
    torch._dynamo.reset()
    side = torch.cuda.Stream()
    x = drawn(2048, 2048)
    expected = three_operations(x @ x) @ x

    def turn() -> torch.Tensor:
        h = three_operations(x @ x)
        done = torch.cuda.Event()
        done.record()
        with torch.cuda.stream(side):
            side.wait_event(done)
            y = (h @ x) * 1.0
        torch.cuda.current_stream().wait_stream(side)
        return y + 0.0

    with hotpath.auto(threshold=3):
        for _ in range(12):
            torch.testing.assert_close(turn(), expected)


def test_a_cuda_graph_that_is_captured_in_a_block_holds_all_calls() -> None:
    torch._dynamo.reset()
    with hotpath.auto(threshold=3):
        for _ in range(6):
            three_operations(drawn(64))
        graph = capture(three_operations, (drawn(64),))
        for seed in range(2, 5):
            found = graph(drawn(64, seed=seed))
            torch.testing.assert_close(found, three_operations(drawn(64, seed=seed)))


def test_a_synchronised_block_has_computed_what_was_called() -> None:
    torch._dynamo.reset()
    x = drawn(64)
    with hotpath.auto(threshold=3) as report:
        for _ in range(9):
            three_operations(x)
            torch.cuda.synchronize()
    assert sum(path.hits for path in report.paths) > 0, str(report)


@pytest.mark.parametrize("norm", ["instance", "group"])
def test_a_compiled_rollout_gives_what_eager_code_gives(
    norm: Norm, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch._dynamo.reset()
    # cuDNN takes TF32 for one of the two and not for the other.
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    architecture = Architecture(width=16, depth=1, norm=norm)
    generator = torch.Generator().manual_seed(0)
    parameters = {
        name: values.float().to(GPU)
        for name, values in make_parameters(architecture, generator, n_operators=2).items()
    }
    state = drawn(2, 3, architecture.n_channels, 16, 16)

    def run(*, compiled: bool, precision: torch.dtype = torch.float32) -> torch.Tensor:
        return evolve(
            architecture, parameters, state, 5,
            policy=Policy("residual", 0.1), noise=StepNoise(0.01), compiled=compiled,
            precision=precision,
        )  # fmt: skip

    eager = run(compiled=False)
    torch.testing.assert_close(run(compiled=True), eager, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(
        run(compiled=True, precision=torch.bfloat16), eager, rtol=0.1, atol=0.1
    )


def test_the_graph_of_a_step_takes_other_weights() -> None:
    torch._dynamo.reset()
    architecture = Architecture(width=16, depth=1)
    state = drawn(1, 2, architecture.n_channels, 16, 16)
    with compile_mode("reduce-overhead"):
        for seed in range(3):
            parameters = {
                name: values.float().to(GPU)
                for name, values in make_parameters(
                    architecture, torch.Generator().manual_seed(seed)
                ).items()
            }
            run = partial(evolve, architecture, parameters, state, 6, noise=StepNoise(0.01))
            torch.testing.assert_close(run(), run(compiled=False), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("plan", ["surgical", "pointwise", "sdpa", "whole"])
def test_a_planned_stack_gives_what_eager_code_gives(plan: str) -> None:
    torch._dynamo.reset()
    configuration = StackConfiguration(n_layers=2, n_hidden=64, n_heads=4, n_inner=128)
    weights = make_weights(configuration, torch.Generator().manual_seed(0))
    x = drawn(2, 32, 64)
    results = []
    for name in ("eager", plan):
        stack = TransformerStack(configuration, name)
        stack.load_weights(weights)
        with torch.no_grad():
            results.append(stack.to(GPU)(x))
    torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_rope_gives_what_eager_code_gives(dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    cosines, sines = make_angles(40, 64, device=GPU)
    compiled = torch.compile(rotate, fullgraph=True)
    for n_tokens in (40, 33):
        x = drawn(2, 3, n_tokens, 64).to(dtype)
        torch.testing.assert_close(compiled(x, cosines, sines), rotate(x, cosines, sines))


@pytest.mark.skipif(not HAS_FP8, reason="this GPU has no FP8")
@pytest.mark.parametrize("compiler", [None, torch.compile])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_fp8_on_the_gpu_is_what_is_emulated(dtype: torch.dtype, compiler: Compiler | None) -> None:
    torch._dynamo.reset()
    assert fp8_kernel(GPU) in ("scaled_mm", "transformer_engine")
    layers = [
        Fp8Linear(64, 48, kernel="scaled_mm", compiler=compiler).to(GPU, dtype),
        Fp8Linear(64, 48, kernel="emulated").to(GPU, dtype),
    ]
    layers[1].load_state_dict(layers[0].state_dict())
    for seed in range(1, 4):
        results, gradients = [], []
        for layer in layers:
            x = drawn(2, 16, 64, seed=seed).to(dtype).requires_grad_()
            with fp8_step(layer):
                result = layer(x)
                result.float().square().sum().backward()
            results.append(result)
            gradients.append(x.grad)
        for one, other in (results, gradients):
            assert one is not None
            torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(layers[0].input_scale.history, layers[1].input_scale.history)


def test_the_force_field_gives_on_the_gpu_what_it_gives_on_the_cpu() -> None:
    weights = painn.make_parameters(torch.Generator().manual_seed(0))
    numbers = torch.tensor([8, 1, 1])
    positions = torch.tensor([[0.0, 0.0, 0.0], [0.76, 0.59, 0.0], [-0.76, 0.59, 0.0]])
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    for device in (torch.device("cpu"), GPU):
        parameters = cast_parameters(weights, dtype=torch.float64, device=device)
        found.append(energy_forces(parameters, numbers.to(device), positions.double().to(device)))
    for on_cpu, on_gpu in zip(*found, strict=True):
        torch.testing.assert_close(on_gpu.cpu(), on_cpu)


def test_a_rollout_draws_its_noise_on_the_gpu() -> None:
    architecture = Architecture(width=8, depth=1)
    generator = torch.Generator().manual_seed(0)
    parameters = {
        name: values.float().to(GPU)
        for name, values in make_parameters(architecture, generator).items()
    }
    state = drawn(1, 1, architecture.n_channels, 16, 16)
    kernels = []
    for noise in (StepNoise(0.01), None):
        run = partial(evolve, architecture, parameters, state, 4, noise=noise, compiled=False)
        kernels.append(count_kernels(run, GPU)[0])
    # Drawn, scaled and added: no copy from the CPU, and no more kernels than these in a step.
    assert kernels[0] - kernels[1] <= 4 * 4
