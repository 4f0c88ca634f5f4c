"""Answer for one model, with PyTorch alone, what ivhl answers of it.

``python plain.py MODEL_FILE forward|step`` prints one JSON object. The file has the functions
``make_model(size)`` and ``make_inputs(size, generator)``; nothing of ivhl is imported, so the two
answers are independent.
"""

import copy
import importlib.util
import json
import logging
import statistics
import sys
import time

import torch
from torch._dynamo.utils import counters
from torch.utils._pytree import tree_leaves, tree_map_only

SIZE, SEED, ROUNDS, ROUND_S = 8, 7, 101, 0.02
SINGLE = {torch.float64: torch.float32, torch.complex128: torch.complex64}
DOUBLE = {single: double for double, single in SINGLE.items()}


def cast(tree, dtypes):
    return tree_map_only(torch.Tensor, lambda x: x.to(dtypes.get(x.dtype, x.dtype)), tree)


class Counting(logging.Handler):
    """Counts what Dynamo logs."""

    number = 0

    def emit(self, record):
        self.number += record.getMessage().startswith("Recompiling")


def make_call(model, whole, inputs):
    """Return a function of no arguments: a forward pass, or a whole step of SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9) if whole else None

    def forward():
        with torch.no_grad():
            return tree_leaves(model(*inputs))

    def step():
        optimizer.zero_grad()
        outputs = tree_leaves(model(*inputs))
        real = [torch.view_as_real(x) if x.is_complex() else x for x in outputs]
        sum(x.sin().mean() for x in real if x.requires_grad).backward()
        optimizer.step()
        return [*outputs, *(p.grad.clone() for p in model.parameters() if p.grad is not None)]

    return step if whole else forward


def error(outputs, exact):
    """Return the largest root mean square error of an output, over that of its exact value."""
    worst = 0.0
    for x, y in zip(outputs, exact, strict=True):
        if isinstance(x, torch.Tensor) and x.numel():
            off = (x.detach().as_subclass(torch.Tensor).to(y.dtype) - y).abs().double()
            size = y.abs().double().square().mean().sqrt().clamp_min(1e-30)
            worst = max(worst, (off.square().mean().sqrt() / size).item())
    return worst


def time_pairs(eager, compiled):
    """Return the CPU seconds of one call of each for every round: other work shares the cores."""
    began = time.process_time()
    eager()
    repeats = max(1, round(ROUND_S / (time.process_time() - began)))
    pairs = []
    for number in range(ROUNDS):
        taken = {}
        for call in (eager, compiled) if number % 2 else (compiled, eager):
            began = time.process_time()
            for _ in range(repeats):
                call()
            taken[call] = (time.process_time() - began) / repeats
        pairs.append((taken[eager], taken[compiled]))
    return pairs


def main(path, what):
    torch.set_num_threads(1)
    spec = importlib.util.spec_from_file_location("model_calls", path)
    calls = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(calls)
    torch.manual_seed(SEED)
    model = calls.make_model(SIZE)
    precise = copy.deepcopy(model)
    for tensor in (*precise.parameters(), *precise.buffers()):
        tensor.data = cast(tensor.data, DOUBLE)
    exact_inputs = calls.make_inputs(SIZE, torch.Generator().manual_seed(SEED))
    inputs = cast(exact_inputs, SINGLE)
    whole = what == "step"
    exact = make_call(precise, whole, exact_inputs)()
    exact = [
        x.detach().as_subclass(torch.Tensor) if isinstance(x, torch.Tensor) else x for x in exact
    ]
    eager = make_call(copy.deepcopy(model), whole, inputs)
    answer = {
        "model": path,
        "what": what,
        "torch": torch.__version__,
        "eager_error": error(eager(), exact),
    }
    torch._logging.set_logs(recompiles=True)  # noqa: SLF001
    again = Counting()
    logging.getLogger("torch._dynamo.guards.__recompiles").addHandler(again)
    counters.clear()
    compiled = make_call(torch.compile(copy.deepcopy(model)), whole, inputs)
    try:
        answer["compiled_error"] = error(compiled(), exact)
        answer |= {"graphs": counters["stats"]["unique_graphs"], **counters["frames"]}
        answer["breaks"] = sum(counters["graph_break"].values())
        answer["recompiles"] = again.number
        for _ in range(5):
            compiled()
        answer["later_recompiles"] = again.number - answer["recompiles"]
    except Exception as failure:  # noqa: BLE001  (whatever a compiler raises is the answer)
        # The first one is the cause: what fails while PyTorch cleans up has it as its context.
        chain = (failure.__context__, failure)
        answer["failure"] = [f"{type(e).__name__}: {e}".splitlines()[0] for e in chain if e]
        json.dump(answer, sys.stdout)
        return
    pairs = time_pairs(eager, compiled)
    ratios = [e / c for e, c in pairs]
    quarters = statistics.quantiles(ratios, n=4)
    answer |= {"median_ratio": statistics.median(ratios), "quartiles": [quarters[0], quarters[2]]}
    answer["ratio_of_minima"] = min(e for e, _ in pairs) / min(c for _, c in pairs)
    answer |= {"eager_s": min(e for e, _ in pairs), "compiled_s": min(c for _, c in pairs)}
    json.dump(answer, sys.stdout)


main(*sys.argv[1:])
