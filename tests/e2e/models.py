"""Declarations of workloads with a model, honest and with faults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ivhl.workload import LEVELS, Variant, Workload

CALLS = "tests.e2e.models_calls"
JUMPS = "tests.e2e.jumping_calls"


def model(name: str, maker: str, inputs: str = "make_sequence", **more: Any) -> Workload:  # noqa: ANN401
    """Return a workload with a model; functions are those of ``CALLS`` if no module is named."""
    for field in ("eager", "make_optimizer", "reference"):
        if field in more and more[field] not in LEVELS:
            more[field] = f"{CALLS}:{more[field]}"
    return Workload(
        name=name,
        version=1,
        title=name,
        sizes={"small": 4},
        default_size="small",
        make_model=f"{CALLS}:{maker}",
        make_inputs=f"{CALLS}:{inputs}",
        **more,
    )


def jumping(name: str, call: str, **more: Any) -> Workload:  # noqa: ANN401
    """Return a workload of which rounding decides some of the outputs."""
    return Workload(
        name=name,
        version=1,
        title=name,
        sizes={"small": 512},
        default_size="small",
        make_inputs=f"{JUMPS}:make_rows",
        eager=f"{JUMPS}:{call}",
        **more,
    )


OWN_STEP = (Variant(name="compiled", compiles="model"),)
WHOLE_STEP = (Variant(name="compiled", compiles="whole"),)

WORKLOADS = (
    model(
        "good.cnn_step", "make_convolutions", "make_images",
        loss="torch.nn.functional:cross_entropy",
    ),
    model(
        "good.cnn_adam", "make_convolutions", "make_images",
        eager="classify", make_optimizer="make_adam", variants=OWN_STEP,
    ),
    model(
        "good.cnn_whole", "make_convolutions", "make_images",
        eager="classify", make_optimizer="make_adam", variants=WHOLE_STEP,
    ),
    model("good.block", "make_block"),
    model("good.block_adamw", "make_block", make_optimizer="make_adamw"),
    model("good.block_forward", "make_block", passes="forward"),
    model("good.block_backward", "make_block", passes="backward"),
    model(
        "good.block_bf16", "make_block", passes="forward",
        variants=(Variant(name="compiled", dtype="bfloat16"),),
    ),
    model("good.block_tolerance", "make_block", reference="tolerance", tolerance=1e-3),
    model("good.block_cosine", "make_block", reference="cosine"),
    model("good.dropout", "make_block_with_dropout"),
    model("good.dropped_channels", "make_dropped_channels", "make_images_of_channels"),
    model("good.variational", "make_variational"),
    model("good.masked", "make_masked"),
    model("good.masked_forward", "make_masked", passes="forward"),
    *(
        Workload(
            name=f"{verdict}.{call}",
            version=1,
            title=call,
            sizes={"small": 4},
            default_size="small",
            make_inputs=f"{CALLS}:{inputs}",
            eager=f"{CALLS}:{call}",
        )
        for verdict, call, inputs in (
            ("good", "vmapped", "make_sequence"),
            ("good", "curvature", "make_sequence"),
            ("good", "selected", "make_rows"),
            ("good", "triangle", "make_sequence"),
            ("good", "counted_up", "make_nothing"),
            ("bad", "large_steps", "make_nothing"),
            ("bad", "drops_fewer", "make_sequence"),
            ("bad", "seen_as_bytes", "make_sequence"),
            ("bad", "needs_what_is_missing", "make_sequence"),
        )
    ),
    model("good.language", "make_language", "make_tokens"),
    model("good.branching", "make_branching"),
    model("good.remembering", "make_remembering"),
    model("good.complex", "make_complex"),
    model("good.tagging", "make_tagging", passes="forward"),
    model("good.exact", "make_perceptron", passes="forward", reference="exact_perceptron"),
    *(
        model(f"bad.{fault}", f"make_{fault}_fault")
        for fault in ("gradient", "buffer", "attribute", "integer", "none", "key", "dtype")
    ),
    *(
        model(
            f"bad.{call}", "make_perceptron",
            eager=call, make_optimizer="make_sgd", variants=OWN_STEP,
        )
        for call in ("no_step", "other_rate", "keeps_the_first")
    ),
    model("bad.float32_only", "make_float32_only"),
    *(
        Workload(
            name=f"good.outputs{name}",
            version=1,
            title="outputs of all kinds",
            sizes={"small": 4},
            default_size="small",
            make_inputs=f"{CALLS}:make_sequence",
            eager=f"{CALLS}:outputs_of_all_kinds",
            variants=(Variant(name="compiled", dynamic=dynamic),),
        )
        for name, dynamic in (("", False), ("_dynamic", None))
    ),
    jumping("good.codes", "codes"),
    jumping("good.codes_named", "codes", outputs=("codes", "rows")),
    jumping("good.codes_tolerance", "codes", reference="tolerance"),
    jumping("good.codes_cosine", "codes", reference="cosine"),
    jumping(
        "good.codes_bf16", "codes",
        variants=(Variant(name="compiled", call=f"{JUMPS}:codes", dtype="bfloat16"),),
    ),
    jumping("good.experts", "experts"),
    jumping("good.ranks", "ranks"),
    jumping("good.masks", "masks"),
    jumping("good.chosen", "chosen"),
    jumping("good.counted", "counted"),
    jumping("good.sampled", "sampled", reference="tolerance"),
    replace(
        model("good.tokens_step", "", "make_tokens"), make_model=f"{JUMPS}:make_quantiser"
    ),
    *(
        jumping(f"bad.{fault}", fault)
        for fault in ("one_code", "one_row", "one_rank", "one_mask", "count", "one_more_chosen")
    ),
    jumping("bad.one_code_tolerance", "one_code", reference="tolerance"),
    Workload(
        name="good.partly_skipped",
        version=1,
        title="a frame that is run eagerly",
        sizes={"small": 4},
        default_size="small",
        make_inputs=f"{CALLS}:make_sequence",
        eager=f"{CALLS}:partly_skipped",
    ),
)  # fmt: skip
