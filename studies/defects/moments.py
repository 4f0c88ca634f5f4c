"""Exchange the moments of AdamW's state between compiled steps, with torch alone.

``python studies/defects/moments.py`` prints by how much a parameter differs from eager code's.
"""

from __future__ import annotations

import inspect

import torch

STEPS = 6


def rename(optimizer: torch.optim.Optimizer) -> None:
    """Give the state of each parameter its names in another order, the moments exchanged."""
    for parameter, state in list(optimizer.state.items()):
        optimizer.state[parameter] = {
            "step": state["step"],
            "exp_avg_sq": state["exp_avg"].abs_(),
            "exp_avg": state["exp_avg_sq"],
        }


def train(*, compiled: bool) -> torch.Tensor:
    """Return the first parameter after six steps, of which the fifth has one gradient only."""
    torch._dynamo.reset()  # noqa: SLF001
    parameters = [
        torch.nn.Parameter(torch.linspace(-1, n, 6, dtype=torch.float64)) for n in (1, 2)
    ]
    optimizer = torch.optim.AdamW(parameters, lr=0.1)
    bare = inspect.unwrap(type(optimizer).step)

    def eager() -> None:
        bare(optimizer)

    step = torch.compile(eager, dynamic=False) if compiled else eager
    for number in range(1, STEPS + 1):
        if number == STEPS - 1:
            parameters[1].requires_grad_(False)  # noqa: FBT003
        if number == STEPS:
            rename(optimizer)
        for n, p in enumerate(parameters):
            p.grad = torch.sin(p.detach() * number + n) if p.requires_grad else None
        with torch.no_grad():
            step()
    return parameters[0].detach()


if __name__ == "__main__":
    difference = (train(compiled=False) - train(compiled=True)).abs().max().item()
    print(torch.__version__, difference)
