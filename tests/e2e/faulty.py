"""Declarations of workloads with every kind of fault, between two workloads without."""

from __future__ import annotations

from ivhl.workload import Variant, Workload

CALLS = "tests.e2e.faulty_calls"


def workload(
    name: str,
    *,
    eager: str = "good",
    call: str | None = None,
    reference: str = "good",
    make_inputs: str = "make_inputs",
    fullgraph: bool = False,
    module: str = CALLS,
    other_size: int | None = None,
) -> Workload:
    """Return a workload with one fault."""
    return Workload(
        name=name,
        version=1,
        title=name,
        sizes={"small": 256} | ({} if other_size is None else {"other": other_size}),
        default_size="small",
        make_inputs=f"{CALLS}:{make_inputs}",
        eager=f"{CALLS}:{eager}",
        reference=f"{CALLS}:{reference}",
        outputs=("y",),
        variants=(
            # By PyTorch's default, a number that changed once would be dynamic.
            Variant(
                name="compiled",
                call=f"{module}:{call or eager}",
                dynamic=False if other_size is None else None,
                fullgraph=fullgraph,
            ),
        ),
    )


WORKLOADS = (
    workload("good.first"),
    workload("bad.import", module="tests.e2e.no_such_module"),
    workload("bad.inputs", make_inputs="raises"),
    workload("bad.reference", reference="raises"),
    workload("bad.eager", eager="raises", reference="good"),
    workload("bad.eager_wrong", eager="off_by_one"),
    workload("bad.eager_mutates", eager="mutates"),
    workload("bad.graph_break", call="breaks_the_graph", fullgraph=True),
    workload("bad.skipped", call="refuses_to_be_compiled"),
    workload("bad.mutates", call="mutates"),
    workload("bad.threads", call="changes_threads"),
    workload("bad.source_wrong", call="off_by_one"),
    workload("bad.wrong", call="wrong_when_compiled"),
    workload("bad.wrong_shape", call="other_shape_when_compiled"),
    workload("bad.nan", call="nan_when_compiled"),
    workload("bad.recompiles", call="recompiles_for_ever", fullgraph=True),
    workload("good.recompiles_silently", call="recompiles_for_ever"),
    workload("bad.guards_on_data", call="guards_on_data"),
    workload("bad.segfault", call="segfaults_when_compiled"),
    workload("good.other_default", make_inputs="changes_the_default_dtype"),
    workload("bad.exit", eager="exits"),
    workload("bad.sys_exit", eager="leaves"),
    workload("bad.import_exit", module="tests.e2e.exits_when_imported"),
    workload("bad.import_sys_exit", module="tests.e2e.leaves_when_imported"),
    workload("bad.killed", eager="killed"),
    workload("bad.memory", eager="takes_memory"),
    workload("bad.hang", eager="hangs"),
    workload("bad.stops_parents", eager="stops_its_parents"),
    workload("bad.kills_parent", eager="kills_its_parent"),
    workload("bad.stops_itself", eager="stops_itself"),
    workload("bad.daemon", eager="leaves_a_daemon_and_hangs"),
    workload("good.other_size", other_size=300),
    workload("good.wrong_at_other_size", call="wrong_at_another_size", other_size=300),
    workload("good.daemon", make_inputs="leaves_a_daemon"),
    workload("good.last"),
)
