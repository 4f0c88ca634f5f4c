"""Time plans of ``ivhl.surgical`` beside plain ``torch.compile``, and find what differs by rounding.

``python -m studies.surgical_parts`` prints RoPE alone, the stack forward and backward, the error of
each against float64, and where the difference between eager and compiled code comes from that the
document left open.

``--device cuda`` does it at the document's sizes, in bfloat16 and with FP8 linear layers.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from benchmarks.surgical import rope, stack
from benchmarks.surgical.rope import calls as rope_calls
from benchmarks.surgical.rope.reference import reference as rope_reference
from benchmarks.surgical.stack import calls as stack_calls
from benchmarks.surgical.stack.reference import reference as stack_reference
from benchmarks.surgical.stack_gradient import calls as gradient_calls
from benchmarks.surgical.stack_gradient.reference import reference as gradient_reference
from ivhl.compile import choose_cache_folder, get_compiled, measuring
from ivhl.measure.draws import cast
from ivhl.measure.intervals import paired_ratio
from ivhl.measure.job import choose_clock
from ivhl.measure.launcher import ALLOCATOR
from ivhl.measure.timing import FULL, QUICK, Schedule, time_arms
from ivhl.surgical import StackConfiguration, choose_operations, make_angles
from ivhl.surgical.configuration import SIZES, StackSize
from ivhl.surgical.fp8 import (
    Fp8Linear,
    fp8_kernel,
    fp8_step,
    multiply_emulated,
    multiply_scaled,
    quantise,
)
from ivhl.surgical.operations import attend_softmax, combine_heads, rotate, split_heads
from ivhl.surgical.plan import PLANS
from ivhl.surgical.stack import apply_stack, make_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ivhl.records.record import Interval
    from ivhl.surgical.fp8 import Fp8Kernel
    from ivhl.surgical.plan import Compiler

    Form = Callable[..., Any]
    Rope = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

CPU: Final = torch.device("cpu")
PARTS: Final = {
    "rope": "RoPE alone",
    "medium": "stack, medium",
    "large": "stack, large",
    "gradient": "gradient, medium",
    "difference": "difference of eager and compiled: largest, RMS",
}
# At the document's sizes; those that compile most come last.
CUDA_PARTS: Final = {
    "rope-bfloat16": "RoPE alone, bfloat16",
    "rope-float32": "RoPE alone, float32",
    "linear": "one linear layer, bfloat16 and FP8",
    "fp8": "stack, FP8 linear layers",
    "difference": PARTS["difference"],
    "difference-document": f"{PARTS['difference']}; the document's size",
    "document": "stack, bfloat16",
    "gradient": "gradient, bfloat16",
    "graphs": "stack, bfloat16, with CUDA graphs",
}
SEED: Final = 1337
# As wide as a CPU computes in seconds; the document: 2048 wide, 16 heads, 8 sequences of 2048.
DIFFERENCE: Final = StackSize(
    StackConfiguration(n_layers=4, n_hidden=512, n_heads=4, n_inner=1024), 1, 512
)
# The document: 8 sequences, 32 heads, 2048 tokens, 128.
DOCUMENT_ROPE: Final = rope.Size(8, 32, 2048, 128)
# A machine with a GPU is lent for minutes.
CUDA: Final = Schedule(block_s=0.02, total_s=2.5, min_rounds=12, max_rounds=60)
# Of a function, each plan and each shape is one; Dynamo's limit is 8.
MOST_GRAPHS: Final = 64


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as one does by hand."""
    made: Callable[..., Any] = torch.compile(function, fullgraph=True)
    return made


def draw(make: Callable[..., Any], size: object) -> tuple[Any, Any]:
    """Return inputs in float32, and the same numbers in float64."""
    drawn = make(size, torch.Generator().manual_seed(SEED))
    single = cast(drawn, torch.float32, CPU)
    return single, cast(single, torch.float64, CPU)


def rms(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the root mean square of a difference."""
    return float((found.double() - exact.double()).square().mean().sqrt())


def compare(
    forms: Mapping[str, Callable[..., Any]],
    inputs: Any,  # noqa: ANN401
    exact: Any,  # noqa: ANN401
    *,
    threads: int,
    schedule: Schedule,
    hand: str,
    device: torch.device = CPU,
) -> list[dict[str, Any]]:
    """Time forms of one computation in turns, and compare each with float64.

    Args:
        forms: Name to function; ``eager`` among them.
        inputs: In float32, or on a GPU in the precision that is timed.
        exact: Outputs of the reference.
        threads: CPU threads.
        schedule: How long to measure.
        hand: The form that one writes by hand.
        device: Where the inputs are.
    """
    target = _first(exact)
    errors: dict[str, dict[str, float]] = {}
    for name, form in forms.items():
        output = _first(form(*inputs))
        errors[name] = {"rms": rms(output, target)}
        if device.type == "cuda":
            errors[name]["relative"] = errors[name]["rms"] / float(target.square().mean().sqrt())
            errors[name]["largest"] = float((output.double() - target).abs().max())
        del output
    times = time_arms(
        {name: partial(form, *inputs) for name, form in forms.items()},
        clock=choose_clock(device.type, threads),
        schedule=schedule,
        seed=SEED,
    )
    samples = {name: one.samples_s for name, one in times.items()}

    def ratio(over: str, name: str) -> list[float]:
        found: Interval = paired_ratio(samples[over], samples[name])
        return [found.value, found.low, found.high]

    rows = []
    width = max(18, *(len(name) + 1 for name in forms))
    for name in forms:
        r: dict[str, Any] = {
            "form": name,
            "ms": 1e3 * sorted(samples[name])[len(samples[name]) // 2],
            "speedup": ratio("eager", name),
            "over_hand": ratio(hand, name),
            **errors[name],
        }
        rows.append(r)
        print(
            f"  {name:<{width}}{r['ms']:9.3f} ms  {r['speedup'][0]:5.2f}x  "
            f"{r['over_hand'][0]:5.2f}x of {hand}  RMSE {r['rms']:.1e}",
            flush=True,
        )
    return rows


def _first(output: Any) -> torch.Tensor:  # noqa: ANN401
    """Return the first of several outputs, or the only one."""
    made: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return made


def time_rope(threads: int, schedule: Schedule) -> list[dict[str, Any]]:
    """Time RoPE alone: the heads of the document, one sequence in place of 8, half as long.

    The allocator maps results of 32 MiB anew at each call. Where the kernel has no huge pages for
    them, that takes three times as long as the arithmetic.
    """
    inputs, double = draw(rope_calls.make_inputs, rope.Size(1, 32, 1024, 128))
    forms = {
        "eager": rope_calls.rope,
        "by hand": compiled(rope_calls.rope),
        "rotate": compiled(rope_calls.rotate_both),
    }
    exact = rope_reference(*double)
    return compare(forms, inputs, exact, threads=threads, schedule=schedule, hand="by hand")


def time_stack(size: str, threads: int, schedule: Schedule) -> list[dict[str, Any]]:
    """Time the plans forward."""
    inputs, double = draw(stack_calls.make_inputs, stack.WORKLOAD.sizes[size])
    forms: dict[str, Callable[..., Any]] = {
        "eager": stack_calls.stack,
        "by hand": compiled(stack_calls.stack),
    }
    forms |= {
        name: stack_calls.planned(compiled, name) for name in ("surgical", "pointwise", "sdpa")
    }
    forms["whole"] = stack_calls.make_whole(compiled)
    with torch.no_grad():
        exact = stack_reference(*double)
        return compare(forms, inputs, exact, threads=threads, schedule=schedule, hand="by hand")


def time_gradient(size: str, threads: int, schedule: Schedule) -> list[dict[str, Any]]:
    """Time forward and backward pass together."""
    inputs, double = draw(gradient_calls.make_inputs, stack.WORKLOAD.sizes[size])
    forms = {
        "eager": gradient_calls.gradient,
        "by hand": gradient_calls.make_naive(compiled),
        "sdpa": gradient_calls.make_sdpa(compiled),
        "whole": gradient_calls.differentiated(stack_calls.make_whole(compiled)),
    }
    exact = gradient_reference(*double)
    return compare(forms, inputs, exact, threads=threads, schedule=schedule, hand="by hand")


# --- where the difference comes from ---------------------------------------------------------------


def document_tables(size: StackSize, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tables as the document makes them: positions and rates in bfloat16.

    What it calls cosine is the sine, and the other way round.
    """
    short = torch.bfloat16
    n_head = size.configuration.n_head
    positions = torch.arange(size.n_tokens, dtype=short)[:, None]
    pairs = torch.arange(0, n_head, 2, dtype=short)
    angles = positions * torch.exp(pairs * -(math.log(10000.0) / n_head))
    return angles.sin().to(device), angles.cos().to(device)


def document_rope(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Turn pairs in the dtype of ``x``, step by step: eager code rounds each product and the sum."""
    pairs = x.unflatten(-1, (-1, 2))
    first, second = first.to(x.dtype), second.to(x.dtype)
    turned = [
        pairs[..., 0] * first - pairs[..., 1] * second,
        pairs[..., 0] * second + pairs[..., 1] * first,
    ]
    return torch.stack(turned, dim=-1).flatten(-2)


def rounded_once(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Turn the same pairs eagerly in float32, and round the result."""
    return document_rope(x.float(), first, second).to(x.dtype)


def draw_layers(
    size: StackSize, device: torch.device
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Return weights and tokens in bfloat16: all kinds have the same numbers."""
    generator = torch.Generator().manual_seed(SEED)
    weights = make_weights(size.configuration, generator)
    x = torch.randn(size.n_batch, size.n_tokens, size.configuration.n_hidden, generator=generator)
    made: tuple[dict[str, torch.Tensor], torch.Tensor] = cast((weights, x), torch.bfloat16, device)
    return made


def make_layers(
    weights: Mapping[str, torch.Tensor],
    kernel: Fp8Kernel | None = None,
    compiler: Compiler | None = None,
) -> dict[str, Fp8Linear]:
    """Return a layer in FP8 for each weight of a linear layer, by its name.

    Args:
        weights: From ``make_weights``, on the device.
        kernel: What multiplies; by default ``fp8_kernel`` of that device.
        compiler: Of their rounding; by default it is eager.
    """
    layers = {}
    for name, weight in weights.items():
        if weight.ndim > 1:
            with weight.device:
                layers[name] = Fp8Linear(
                    weight.shape[1],
                    weight.shape[0],
                    kernel=kernel or fp8_kernel(weight.device),
                    compiler=compiler,
                )
            layers[name].weight = torch.nn.Parameter(weight)
    return layers


def make_static_compiler() -> Compiler:
    """Return what compiles by hand with static shapes, and each function once."""
    return cache(partial(torch.compile, fullgraph=True, dynamic=False))


def take_scales(layers: Mapping[str, Fp8Linear], others: Mapping[str, Fp8Linear]) -> None:
    """Copy the scales of other layers of the same names, which have the same weights."""
    for name, layer in layers.items():
        layer.load_state_dict(others[name].state_dict())


def run_layers(
    kind: str,
    drawn: tuple[StackConfiguration, dict[str, torch.Tensor], torch.Tensor],
    tables: tuple[torch.Tensor, torch.Tensor],
    turn: Rope,
    **parts: Any,  # noqa: ANN401
) -> torch.Tensor:
    """Return the tokens after the layers of the document.

    Args:
        kind: ``float64``, ``float32``, ``bfloat16``, or ``fp8``: linear layers in FP8 with
            bfloat16 between them.
        drawn: The architecture; weights and tokens of ``draw_layers``.
        tables: Of RoPE.
        turn: RoPE of queries or keys.
        **parts: ``split`` and ``combine`` in other forms; ``kernel`` of FP8.
    """
    dtype = torch.bfloat16 if kind == "fp8" else getattr(torch, kind)
    configuration = drawn[0]
    weights = {name: w.to(dtype) for name, w in drawn[1].items()}
    x = drawn[2].to(dtype)
    split: Form = parts.get("split", partial(split_heads, n_heads=configuration.n_heads))
    combine: Form = parts.get("combine", combine_heads)

    def attend(qkv: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        q, k, v = split(qkv)
        q, k = turn(q, first, second), turn(k, first, second)
        combined: torch.Tensor = combine(attend_softmax(q, k, v, causal=False))
        return combined

    operations = choose_operations(configuration, PLANS["eager"])._replace(attend=attend)
    layers = make_layers(weights, parts.get("kernel")) if kind == "fp8" else {}
    apply_linear = by_layers(layers) if layers else None
    with torch.no_grad():
        return apply_stack(
            configuration.n_layers, operations, weights, x, tables, apply_linear=apply_linear
        )


def by_layers(layers: Mapping[str, Fp8Linear]) -> Callable[[str, torch.Tensor], torch.Tensor]:
    """Return what multiplies by the layer of a name."""

    def multiply(name: str, h: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = layers[name](h)
        return made

    return multiply


def find_difference(
    size: StackSize = DIFFERENCE, device: torch.device = CPU
) -> list[dict[str, Any]]:
    """Compare eager and compiled layers of the document, changing one thing at a time."""
    configuration = size.configuration
    drawn = (configuration, *draw_layers(size, device))
    theirs = document_tables(size, device)
    angles = make_angles(size.n_tokens, configuration.n_head, dtype=torch.float64, device=device)
    exact = (angles[1], angles[0])  # exchanged, as theirs are
    single = tuple(one.float() for one in exact)
    truth = run_layers("float64", drawn, exact, document_rope)
    step = compiled(document_rope)
    once = compiled(rotate)
    eager: dict[str, torch.Tensor] = {
        kind: run_layers(kind, drawn, theirs, document_rope)
        for kind in ("float32", "bfloat16", "fp8")
    }
    split = compiled(partial(split_heads, n_heads=configuration.n_heads))
    moved = {"split": split, "combine": compiled(combine_heads)}
    rows = []

    def add(what: str, one: torch.Tensor, other: torch.Tensor) -> None:
        rows.append(
            {
                "what": what,
                "largest": float((one.double() - other.double()).abs().max()),
                "rms": rms(one, other),
                "eager_rms": rms(one, truth),
                "compiled_rms": rms(other, truth),
            }
        )
        r = rows[-1]
        print(
            f"  {what:<64}{r['largest']:9.1e}{r['rms']:9.1e}   from float64 "
            f"{r['eager_rms']:.1e}, {r['compiled_rms']:.1e}",
            flush=True,
        )

    add("float32, RoPE compiled", eager["float32"], run_layers("float32", drawn, theirs, step))
    for kind, name in (("bfloat16", "bfloat16"), ("fp8", "FP8 linear layers")):
        moving = run_layers(kind, drawn, theirs, document_rope, **moved)
        add(f"{name}, split and combine compiled", eager[kind], moving)
        add(f"{name}, RoPE compiled", eager[kind], run_layers(kind, drawn, theirs, step))
        add(
            f"{name}, RoPE compiled beside eager rounded once",
            run_layers(kind, drawn, theirs, rounded_once),
            run_layers(kind, drawn, theirs, step),
        )
        add(
            f"{name}, tables in float32, RoPE step by step",
            run_layers(kind, drawn, single, document_rope),
            run_layers(kind, drawn, single, step),
        )
        add(
            f"{name}, `ivhl.surgical`: tables in float32, rounded once",
            run_layers(kind, drawn, single, rotate),
            run_layers(kind, drawn, single, once),
        )
        if device.type == "cuda":  # on a CPU the option changes nothing
            add(
                f"{name}, RoPE compiled with emulate_precision_casts",
                eager[kind],
                run_layers(kind, drawn, theirs, compiled_as_eager(document_rope)),
            )
    if device.type == "cuda":
        add(
            "FP8 linear layers, eager: the kernel beside float32 of the same numbers",
            run_layers("fp8", drawn, single, rotate),
            run_layers("fp8", drawn, single, rotate, kernel="emulated"),
        )
    return rows


def compiled_as_eager(function: Form) -> Form:
    """Compile with each intermediate number rounded where eager code rounds it."""
    made: Form = torch.compile(function, fullgraph=True, options={"emulate_precision_casts": True})
    return made


# --- on a GPU, at the document's sizes -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Drawn:
    """Inputs in the precision that is timed, on the device.

    Attributes:
        inputs: All of them in that precision, the tables of RoPE as well, as in the document.
        double: The same numbers in float64, with tables that were never rounded.
        tables: Cosines and sines in float32, as ``ivhl.surgical`` keeps them.
    """

    inputs: tuple[Any, ...]
    double: tuple[Any, ...]
    tables: tuple[torch.Tensor, torch.Tensor]

    def ours(self, form: Form) -> Form:
        """Return a form that is given the tables in float32."""

        def run(*inputs: Any) -> Any:  # noqa: ANN401
            return form(*inputs[:2], *self.tables, *inputs[4:])

        return run


def draw_in(make: Form, size: object, dtype: torch.dtype, device: torch.device) -> Drawn:
    """Draw inputs of which the third and fourth are tables of RoPE."""
    drawn = make(size, torch.Generator().manual_seed(SEED))
    inputs = cast(drawn, dtype, device)
    double = cast(inputs, torch.float64, device)
    cosines, sines = cast(drawn[2:4], torch.float64, device)
    return Drawn(
        inputs, (*double[:2], cosines, sines, *double[4:]), (cosines.float(), sines.float())
    )


def time_rope_in(
    dtype: torch.dtype, size: rope.Size, device: torch.device, schedule: Schedule
) -> list[dict[str, Any]]:
    """Time RoPE alone."""
    drawn = draw_in(rope_calls.make_inputs, size, dtype, device)
    forms = {
        "eager": rope_calls.rope,
        "by hand": compiled(rope_calls.rope),
        "rotate, eager": drawn.ours(rope_calls.rotate_both),
        "rotate": drawn.ours(compiled(rope_calls.rotate_both)),
    }
    exact = rope_reference(*drawn.double)
    return compare(
        forms, drawn.inputs, exact, threads=1, schedule=schedule, hand="by hand", device=device
    )


def time_stack_in_bfloat16(
    size: stack.Size, device: torch.device, schedule: Schedule
) -> list[dict[str, Any]]:
    """Time the plans forward."""
    drawn = draw_in(stack_calls.make_inputs, size, torch.bfloat16, device)
    forms: dict[str, Form] = {
        "eager": stack_calls.stack,
        "by hand": compiled(stack_calls.stack),
    }
    forms |= {
        name: drawn.ours(stack_calls.planned(compiled, name))
        for name in ("surgical", "pointwise", "sdpa")
    }
    forms["whole"] = drawn.ours(stack_calls.make_whole(compiled))
    with torch.no_grad():
        exact = stack_reference(*drawn.double)
        return compare(
            forms, drawn.inputs, exact, threads=1, schedule=schedule, hand="by hand", device=device
        )


def time_graphs(
    size: stack.Size, device: torch.device, schedule: Schedule
) -> list[dict[str, Any]]:
    """Time plans as ``ivhl.compile`` compiles them on a GPU, with CUDA graphs, beside none."""
    drawn = draw_in(stack_calls.make_inputs, size, torch.bfloat16, device)

    def in_mode(mode: Any) -> Form:  # noqa: ANN401  (a mode)
        return partial(get_compiled, mode=mode, fullgraph=True, dynamic=False)

    forms = {
        "eager": stack_calls.stack,
        "sdpa": stack_calls.planned(in_mode("default"), "sdpa"),
        "sdpa, reduce-overhead": stack_calls.planned(in_mode("reduce-overhead"), "sdpa"),
        "sdpa, max-autotune": stack_calls.planned(in_mode("max-autotune"), "sdpa"),
        "whole": stack_calls.make_whole(in_mode("default")),
        "whole, reduce-overhead": stack_calls.make_whole(in_mode("reduce-overhead")),
    }
    forms = {name: form if name == "eager" else drawn.ours(form) for name, form in forms.items()}
    with torch.no_grad(), measuring():
        exact = stack_reference(*drawn.double)
        return compare(
            forms, drawn.inputs, exact, threads=1, schedule=schedule, hand="sdpa", device=device
        )


def time_gradient_in_bfloat16(
    size: stack.Size, device: torch.device, schedule: Schedule
) -> list[dict[str, Any]]:
    """Time forward and backward pass together."""
    drawn = draw_in(gradient_calls.make_inputs, size, torch.bfloat16, device)
    forms = {
        "eager": gradient_calls.gradient,
        "by hand": gradient_calls.make_naive(compiled),
        "sdpa": drawn.ours(gradient_calls.make_sdpa(compiled)),
        "whole": drawn.ours(gradient_calls.differentiated(stack_calls.make_whole(compiled))),
    }
    exact = gradient_reference(*drawn.double)[0]
    return compare(
        forms, drawn.inputs, exact, threads=1, schedule=schedule, hand="by hand", device=device
    )


def multiply(
    left: torch.Tensor,
    right: torch.Tensor,
    scales: tuple[torch.Tensor, torch.Tensor],
    dtype: torch.dtype,
) -> torch.Tensor:
    """Return the product of two rounded tensors as ``Fp8Linear`` does there."""
    if fp8_kernel(left.device) == "emulated":
        return multiply_emulated(left, right, (scales[0] * scales[1]).reciprocal(), dtype)
    return multiply_scaled(left, right, scales, dtype)


def time_fp8(size: stack.Size, device: torch.device, schedule: Schedule) -> list[dict[str, Any]]:
    """Time plans with FP8 linear layers, by hand being the document's: all eager but FP8.

    Scales come from one step before. The time of updating them after a step is left out, as in the
    document, which never updates them.
    """
    drawn = draw_in(stack_calls.make_inputs, size, torch.bfloat16, device)
    configuration = size.configuration
    layers = make_layers(drawn.inputs[0])
    rounding = make_layers(drawn.inputs[0], compiler=make_static_compiler())
    plans = {
        name: choose_operations(configuration, PLANS[name], compiled)
        for name in ("eager", "surgical", "pointwise", "sdpa")
    }
    step_by_step = plans["eager"]._replace(attend=partial(attend_by_hand, configuration.n_heads))

    def form(operations: Any, apply_linear: Any = None) -> Form:  # noqa: ANN401
        def run(
            weights: dict[str, torch.Tensor], x: torch.Tensor, *tables: torch.Tensor
        ) -> torch.Tensor:
            return apply_stack(
                *(configuration.n_layers, operations, weights, x, (tables[0], tables[1])),
                apply_linear=apply_linear,
            )

        return run

    fp8, fp8_compiled = by_layers(layers), by_layers(rounding)
    forms = {
        "eager": form(step_by_step),
        "sdpa": drawn.ours(form(plans["sdpa"])),
        "eager, FP8": form(step_by_step, fp8),
        "surgical, FP8": drawn.ours(form(plans["surgical"], fp8)),
        "pointwise, FP8": drawn.ours(form(plans["pointwise"], fp8)),
        "sdpa, FP8": drawn.ours(form(plans["sdpa"], fp8)),
        "surgical, FP8, rounding compiled": drawn.ours(form(plans["surgical"], fp8_compiled)),
        "sdpa, FP8, rounding compiled": drawn.ours(form(plans["sdpa"], fp8_compiled)),
    }
    with torch.no_grad():
        exact = stack_reference(*drawn.double)
        with fp8_step(torch.nn.ModuleList(layers.values())):
            forms["eager, FP8"](*drawn.inputs)
        take_scales(rounding, layers)
        return compare(
            forms, drawn.inputs, exact,
            threads=1, schedule=schedule, hand="eager, FP8", device=device,
        )  # fmt: skip


def attend_by_hand(
    n_heads: int, qkv: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
) -> torch.Tensor:
    """Return attention as the document has it, RoPE step by step in the dtype of the tokens."""
    q, k, v = split_heads(qkv, n_heads)
    q, k = rope_calls.rope(q, k, cosines, sines)
    return combine_heads(attend_softmax(q, k, v, causal=False))


def time_linear(
    size: stack.Size, device: torch.device, schedule: Schedule
) -> list[dict[str, Any]]:
    """Time the first linear layer of the feed-forward network, and parts of it in FP8."""
    generator = torch.Generator().manual_seed(SEED)
    x, weight = cast(
        (
            torch.randn(size.n_batch * size.n_tokens, size.n_hidden, generator=generator),
            torch.randn(size.n_inner, size.n_hidden, generator=generator) / size.n_hidden**0.5,
        ),
        torch.bfloat16,
        device,
    )
    layers = make_layers({"up": weight})
    rounding = make_layers({"up": weight}, compiler=make_static_compiler())
    layer = layers["up"]
    with torch.no_grad():
        with fp8_step(layer):
            layer(x)
        take_scales(rounding, layers)
        scales = (layer.input_scale.scale, layer.weight_scale.scale)
        left, right = quantise(x, scales[0]), quantise(weight, scales[1])
        inverses = tuple(scale.reciprocal() for scale in scales)

        def rounded(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
            short = quantise(x, scales[0]), quantise(weight, scales[1])
            return multiply(*short, scales, x.dtype), *short

        forms: dict[str, Form] = {
            "eager": torch.nn.functional.linear,
            "FP8": lambda x, _: layer(x),
            "FP8, scales known": rounded,
            "FP8, rounding compiled": lambda x, _: rounding["up"](x),
            "FP8, rounded before": lambda x, _: multiply(left, right, scales, x.dtype),
            "emulated, rounded before": lambda x, _: multiply_emulated(
                left, right, (scales[0] * scales[1]).reciprocal(), x.dtype
            ),
        }
        if fp8_kernel(device) == "scaled_mm":
            forms["FP8, rounded before, fast accumulation"] = lambda x, _: torch._scaled_mm(  # noqa: SLF001
                left, right.t(), scale_a=inverses[0], scale_b=inverses[1],
                out_dtype=x.dtype, use_fast_accum=True,
            )  # fmt: skip
        exact = x.double() @ weight.double().t()
        return compare(
            forms, (x, weight), exact, threads=1, schedule=schedule, hand="eager", device=device
        )


def time_on_gpu(part: str, schedule: Schedule, device: torch.device) -> list[dict[str, Any]]:
    """Run one of ``CUDA_PARTS``."""
    torch.compiler.reset()  # what other parts compiled
    torch.cuda.empty_cache()
    size = stack.size_of("document")
    if part.startswith("rope-"):
        dtype = getattr(torch, part.removeprefix("rope-"))
        return time_rope_in(dtype, DOCUMENT_ROPE, device, schedule)
    if part == "difference":
        return find_difference(DIFFERENCE, device)
    if part == "difference-document":
        return find_difference(SIZES["document"], device)
    timed = {
        "linear": time_linear,
        "fp8": time_fp8,
        "document": time_stack_in_bfloat16,
        "gradient": time_gradient_in_bfloat16,
        "graphs": time_graphs,
    }
    return timed[part](size, device, schedule)


def time_on_cpu(part: str, threads: int, schedule: Schedule) -> list[dict[str, Any]]:
    """Run one of ``PARTS``."""
    if part == "difference":
        return find_difference()
    if part == "rope":
        return time_rope(threads, schedule)
    if part == "gradient":
        return time_gradient("medium", threads, schedule)
    return time_stack(part, threads, schedule)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m studies.surgical_parts")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--part", choices={**PARTS, **CUDA_PARTS}, action="append", help="only this (repeatable)"
    )
    parser.add_argument("--quick", action="store_true", help="a second in place of six: a trial")
    parser.add_argument("--export", type=Path, metavar="FILE", help="write all of it as JSON")
    options = parser.parse_args()
    on_gpu = options.device == "cuda"
    if on_gpu and not torch.cuda.is_available():
        parser.error("--device cuda: this PyTorch sees no GPU")
    known = CUDA_PARTS if on_gpu else PARTS
    for part in options.part or ():
        if part not in known:
            parser.error(f"with --device {options.device} there is no part {part}")
    if "GLIBC_TUNABLES" not in os.environ:  # as cases of the suite are measured
        os.execve(  # noqa: S606  (this program)
            sys.executable,
            [sys.executable, "-m", "studies.surgical_parts", *sys.argv[1:]],
            os.environ | {"GLIBC_TUNABLES": ALLOCATOR},
        )
    # The difference does not depend on the number of threads.
    parts = options.part or [p for p in known if options.threads == 1 or p != "difference"]
    full = CUDA if on_gpu else FULL
    schedule = QUICK if options.quick else full
    torch.set_num_threads(options.threads)
    choose_cache_folder()
    load = round(os.getloadavg()[0], 1)
    found: dict[str, Any] = {
        "torch": torch.__version__.partition("+")[0],
        "python": platform.python_version(),
        "threads": options.threads,
        "quick": options.quick,
        "load": [load],
    }
    if on_gpu:
        torch._dynamo.config.recompile_limit = MOST_GRAPHS  # noqa: SLF001
        found["device"] = f"cuda {torch.cuda.get_device_name()}"
        found["fp8_kernel"] = fp8_kernel("cuda")
    for part in known:
        if part in parts:
            print(known[part], flush=True)
            if on_gpu:
                found[part] = time_on_gpu(part, schedule, torch.device("cuda"))
            else:
                found[part] = time_on_cpu(part, options.threads, schedule)
            found["load"] = [load, round(os.getloadavg()[0], 1)]
            if options.export:  # each part at once: the next one may fail
                options.export.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
