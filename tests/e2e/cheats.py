"""Declarations of workloads that cheat in every known way, and of honest ones."""

from __future__ import annotations

from typing import Any, Literal

from ivhl.workload import Engine, Variant, Workload

CALLS = "tests.e2e.cheats_calls"
STATES = (
    "threads", "grad", "dtype", "device", "deterministic", "matmul", "autocast",
    "random", "python_random", "collector", "collector_threshold", "affinity", "nice",
    "environment", "profile", "torch_function", "clock", "own_function",
)  # fmt: skip


def workload(
    name: str,
    call: str,
    *,
    engine: Engine = "eager",
    compiles: Literal["whole", "parts"] = "parts",
    eager: str = "good",
    make_inputs: str = "make_inputs",
    reference: str | None = None,
    fixed: tuple[int, ...] = (),
    **variant: Any,  # noqa: ANN401  (fields of Variant)
) -> Workload:
    """Return a workload with one variant, by default not compiled, which most cheats do not need."""
    beside: dict[str, Any] = {
        k: f"{CALLS}:{v}" if k in ("prepare", "finish") else v for k, v in variant.items()
    }
    return Workload(
        name=name,
        version=1,
        title=name,
        sizes={"small": 16384},
        default_size="small",
        make_inputs=f"{CALLS}:{make_inputs}",
        eager=f"{CALLS}:{eager}",
        reference=f"{CALLS}:{reference or eager}",
        outputs=("y",),
        fixed=fixed,
        variants=(
            Variant(name="v", call=f"{CALLS}:{call}", engine=engine, compiles=compiles, **beside),
        ),
    )


def honest(name: str, call: str, **more: Any) -> Workload:  # noqa: ANN401
    """Return a workload whose variant is its eager function, compiled."""
    return workload(name, call, **{"eager": call, "engine": "compile", "compiles": "whole"} | more)


WORKLOADS = (
    workload("keeps.first", "keeps_the_first"),
    workload("keeps.by_version", "remembers_by_version"),
    workload("keeps.by_sample", "remembers_by_sample", engine="compile"),
    workload("keeps.by_value", "remembers_by_value"),
    workload("keeps.half", "remembers_half"),
    workload("keeps.later", "remembers_later"),
    workload("keeps.by_number", "counts_calls"),
    workload("keeps.seeds", "knows_the_seeds"),
    workload("keeps.only_seeds", "knows_only_the_seeds"),
    workload("keeps.block_ends", "right_at_the_end_of_a_block"),
    workload("keeps.buffer", "same_buffer"),
    workload("keeps.fixed", "remembers_by_sample", fixed=(0,)),
    workload("elsewhere.lazy", "lazy"),
    workload("elsewhere.lazy_input", "copied", compiles="whole", prepare="prepare_lazy"),
    workload("elsewhere.thread", "in_a_thread"),
    workload("elsewhere.after", "after_the_call"),
    workload("elsewhere.worker", "in_a_worker"),
    workload("elsewhere.orphan", "in_an_orphan"),
    workload("elsewhere.daemon", "in_a_daemon_after_the_call"),
    workload("elsewhere.per_call", "in_a_process_per_call"),
    workload("elsewhere.unwaited", "in_a_process_nobody_waits_for"),
    workload("elsewhere.sleeps", "waits"),
    workload("elsewhere.burns", "burns_beside_eager"),
    workload("elsewhere.holds", "makes_eager_wait"),
    workload(
        "elsewhere.eager_burns",
        "good",
        compiles="whole",
        eager="good_beside_a_thread",
        reference="good",
    ),
    workload("elsewhere.prepare", "copied", compiles="whole", prepare="computed"),
    workload("elsewhere.finish", "copied", compiles="whole", finish="computed"),
    workload("changes.input", "sorts_in_place", compiles="whole", eager="sums"),
    *(workload(f"changes.{state}", f"changes_{state}") for state in STATES),
    *(workload(f"changes.source_{state}", f"source_changes_{state}") for state in STATES),
    honest("wrong.source", "own_source_wrong", eager="good"),
    honest("wrong.element", "one_element_off", eager="good"),
    workload("wrong.later", "wrong_later", engine="compile"),
    workload("wrong.every_other", "wrong_every_other_time", engine="compile"),
    workload("wrong.raises_later", "raises_later", engine="compile"),
    honest("compiles.counts", "counts", eager="good", dynamic=False),
    workload("compiles.counts_later", "counts_later", engine="compile"),
    workload("compiles.breaks_later", "breaks_later", engine="compile"),
    workload("compiles.helper", "compiles_a_helper", engine="compile"),
    honest("compiles.breaks", "breaks_in_the_middle", eager="good"),
    honest("compiles.breaks_untraceable", "prints_in_the_middle", eager="good"),
    honest("honest.good", "good"),
    honest("honest.trivial", "helper"),
    honest("honest.dynamic", "good", dynamic=True),
    honest("honest.integers", "integers", make_inputs="make_integers"),
    honest("honest.complex", "complex_product", make_inputs="make_complex"),
    workload("honest.gradient", "gradient_compiled", engine="compile", eager="gradient"),
    honest("honest.view", "view"),
    honest("honest.lengths", "good", make_inputs="make_any_length"),
    honest("honest.same_data", "good", make_inputs="make_the_same"),
    honest("honest.random", "good", eager="draws_for_nothing", reference="good"),
    workload("honest.two_ulp", "two_ulp_off", eager="exact_scalar", reference="scalar_reference"),
    workload("honest.cancels", "adds", eager="exact_sum", make_inputs="make_terms"),
    workload("wrong.cancels", "adds_most", eager="exact_sum", make_inputs="make_terms"),
    honest("honest.slow", "slow"),
)
