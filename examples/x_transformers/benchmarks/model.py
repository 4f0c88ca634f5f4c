"""Two workloads of ivhl-example-x-transformers: forward pass and training step of a model.

ivhl reads this file without torch, so functions are given by name. All fields are in ivhl's
docs/workloads.md.
"""

from ivhl.workload import Workload

CALLS = "benchmarks.model_calls"

WORKLOADS = (
    Workload(
        name="model.forward",
        version=1,  # raise it when the model, its inputs or its sizes change
        title="forward pass",
        sizes={"small": 8},  # passed to both functions
        default_size="small",
        make_model=f"{CALLS}:make_model",
        make_inputs=f"{CALLS}:make_inputs",
        passes="forward",
    ),
    Workload(
        name="model.step",
        version=1,
        title="forward and backward pass, and a step of SGD",
        sizes={"small": 8},
        default_size="small",
        make_model=f"{CALLS}:make_model",
        make_inputs=f"{CALLS}:make_inputs",
    ),
)
