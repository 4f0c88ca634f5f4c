"""Time plans of ``ivhl.surgical`` beside plain ``torch.compile``, and find what differs by rounding.

``python -m studies.surgical_parts`` prints RoPE alone, the stack forward and backward, the error of
each against float64, and where the difference between eager and compiled code comes from that the
document left open.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
from dataclasses import replace
from functools import partial
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
from ivhl.compile import choose_cache_folder
from ivhl.measure.draws import cast
from ivhl.measure.intervals import paired_ratio
from ivhl.measure.job import choose_clock
from ivhl.measure.launcher import ALLOCATOR
from ivhl.measure.timing import FULL, QUICK, time_arms
from ivhl.surgical import StackConfiguration, choose_operations, make_angles
from ivhl.surgical.fp8 import Fp8Linear
from ivhl.surgical.operations import attend_softmax, combine_heads, rotate, split_heads
from ivhl.surgical.plan import PLANS
from ivhl.surgical.stack import apply_stack, make_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ivhl.measure.timing import Schedule
    from ivhl.records.record import Interval

    Rope = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

CPU: Final = torch.device("cpu")
PARTS: Final = {
    "rope": "RoPE alone",
    "medium": "stack, medium",
    "large": "stack, large",
    "gradient": "gradient, medium",
    "difference": "difference of eager and compiled: largest, RMS",
}
SEED: Final = 1337
# As wide as a CPU computes in seconds; the document: 2048 wide, 16 heads, 8 sequences of 2048.
DIFFERENCE: Final = StackConfiguration(n_layers=4, n_hidden=512, n_heads=4, n_inner=1024)
N_TOKENS: Final = 512


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
) -> list[dict[str, Any]]:
    """Time forms of one computation in turns, and compare each with float64.

    Args:
        forms: Name to function; ``eager`` among them.
        inputs: In float32.
        exact: Outputs of the reference.
        threads: CPU threads.
        schedule: How long to measure.
        hand: The form that one writes by hand.
    """
    outputs = {name: form(*inputs) for name, form in forms.items()}
    times = time_arms(
        {name: partial(form, *inputs) for name, form in forms.items()},
        clock=choose_clock("cpu", threads),
        schedule=schedule,
        seed=SEED,
    )
    samples = {name: one.samples_s for name, one in times.items()}

    def ratio(over: str, name: str) -> list[float]:
        found: Interval = paired_ratio(samples[over], samples[name])
        return [found.value, found.low, found.high]

    rows = []
    for name in forms:
        firsts = [o[0] if isinstance(o, tuple) else o for o in (outputs[name], exact)]
        r: dict[str, Any] = {
            "form": name,
            "ms": 1e3 * sorted(samples[name])[len(samples[name]) // 2],
            "speedup": ratio("eager", name),
            "over_hand": ratio(hand, name),
            "rms": rms(*firsts),
        }
        rows.append(r)
        print(
            f"  {name:<18}{r['ms']:9.3f} ms  {r['speedup'][0]:5.2f}x  "
            f"{r['over_hand'][0]:5.2f}x of {hand}  RMSE {r['rms']:.1e}",
            flush=True,
        )
    return rows


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


def document_tables() -> tuple[torch.Tensor, torch.Tensor]:
    """Return tables as the document makes them: positions and rates in bfloat16.

    What it calls cosine is the sine, and the other way round.
    """
    short = torch.bfloat16
    positions = torch.arange(N_TOKENS, dtype=short)[:, None]
    pairs = torch.arange(0, DIFFERENCE.n_head, 2, dtype=short)
    angles = positions * torch.exp(pairs * -(math.log(10000.0) / DIFFERENCE.n_head))
    return angles.sin(), angles.cos()


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


def run_layers(
    kind: str, tables: tuple[torch.Tensor, torch.Tensor], turn: Rope, **parts: Callable[..., Any]
) -> torch.Tensor:
    """Return the tokens after the layers of the document.

    Args:
        kind: ``float64``, ``float32``, ``bfloat16``, or ``fp8``: linear layers in FP8 with
            bfloat16 between them.
        tables: Of RoPE.
        turn: RoPE of queries or keys.
        **parts: ``split`` and ``combine`` in other forms.
    """
    dtype = torch.bfloat16 if kind == "fp8" else getattr(torch, kind)
    generator = torch.Generator().manual_seed(SEED)
    # All kinds have the same numbers: those that bfloat16 has.
    weights = {
        name: w.bfloat16().to(dtype) for name, w in make_weights(DIFFERENCE, generator).items()
    }
    x = torch.randn(1, N_TOKENS, DIFFERENCE.n_hidden, generator=generator).bfloat16().to(dtype)
    split: Callable[..., Any] = parts.get(
        "split", partial(split_heads, n_heads=DIFFERENCE.n_heads)
    )
    combine: Callable[..., Any] = parts.get("combine", combine_heads)

    def attend(qkv: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        q, k, v = split(qkv)
        q, k = turn(q, first, second), turn(k, first, second)
        combined: torch.Tensor = combine(attend_softmax(q, k, v, causal=False))
        return combined

    operations = replace(choose_operations(DIFFERENCE, PLANS["eager"]), attend=attend)
    layers = {}
    if kind == "fp8":
        for name, weight in weights.items():
            if weight.ndim > 1:
                layers[name] = Fp8Linear(weight.shape[1], weight.shape[0])
                layers[name].weight = torch.nn.Parameter(weight)

    def multiply(name: str, h: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = layers[name](h)
        return made

    apply_linear = multiply if layers else None
    with torch.no_grad():
        return apply_stack(DIFFERENCE, operations, weights, x, tables, apply_linear=apply_linear)


def find_difference() -> list[dict[str, Any]]:
    """Compare eager and compiled layers of the document, changing one thing at a time."""
    theirs = document_tables()
    angles = make_angles(N_TOKENS, DIFFERENCE.n_head, dtype=torch.float64)
    exact = (angles[1], angles[0])  # exchanged, as theirs are
    single = tuple(one.float() for one in exact)
    truth = run_layers("float64", exact, document_rope)
    step = compiled(document_rope)
    once = compiled(rotate)
    eager: dict[str, torch.Tensor] = {
        kind: run_layers(kind, theirs, document_rope) for kind in ("float32", "bfloat16", "fp8")
    }
    split = compiled(partial(split_heads, n_heads=DIFFERENCE.n_heads))
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

    add("float32, RoPE compiled", eager["float32"], run_layers("float32", theirs, step))
    for kind, name in (("bfloat16", "bfloat16"), ("fp8", "FP8 linear layers")):
        moving = run_layers(kind, theirs, document_rope, **moved)
        add(f"{name}, split and combine compiled", eager[kind], moving)
        add(f"{name}, RoPE compiled", eager[kind], run_layers(kind, theirs, step))
        add(
            f"{name}, RoPE compiled beside eager rounded once",
            run_layers(kind, theirs, rounded_once),
            run_layers(kind, theirs, step),
        )
        add(
            f"{name}, tables in float32, RoPE step by step",
            run_layers(kind, single, document_rope),
            run_layers(kind, single, step),
        )
        add(
            f"{name}, `ivhl.surgical`: tables in float32, rounded once",
            run_layers(kind, single, rotate),
            run_layers(kind, single, once),
        )
    return rows


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m studies.surgical_parts")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--part", choices=PARTS, action="append", help="only this (repeatable)")
    parser.add_argument("--quick", action="store_true", help="a second in place of six: a trial")
    parser.add_argument("--export", type=Path, metavar="FILE", help="write all of it as JSON")
    options = parser.parse_args()
    if "GLIBC_TUNABLES" not in os.environ:  # as cases of the suite are measured
        os.execve(  # noqa: S606  (this program)
            sys.executable,
            [sys.executable, "-m", "studies.surgical_parts", *sys.argv[1:]],
            os.environ | {"GLIBC_TUNABLES": ALLOCATOR},
        )
    # The difference does not depend on the number of threads.
    parts = options.part or [p for p in PARTS if options.threads == 1 or p != "difference"]
    schedule = QUICK if options.quick else FULL
    torch.set_num_threads(options.threads)
    choose_cache_folder()
    found: dict[str, Any] = {
        "torch": torch.__version__.partition("+")[0],
        "python": platform.python_version(),
        "threads": options.threads,
        "quick": options.quick,
        "load": [round(os.getloadavg()[0], 1)],
    }
    for part in PARTS:
        if part in parts:
            print(PARTS[part], flush=True)
            if part == "difference":
                found[part] = find_difference()
            elif part == "rope":
                found[part] = time_rope(options.threads, schedule)
            elif part == "gradient":
                found[part] = time_gradient("medium", options.threads, schedule)
            else:
                found[part] = time_stack(part, options.threads, schedule)
    found["load"].append(round(os.getloadavg()[0], 1))
    if options.export:
        options.export.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
