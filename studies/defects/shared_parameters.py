"""Give two parameters one memory between compiled optimizer steps, with torch alone.

``python studies/defects/shared_parameters.py`` prints by how much each differs from eager code's.
"""

from __future__ import annotations

import torch

STEPS = 5
SHARED_FROM = 3


def make() -> tuple[list[torch.nn.Parameter], torch.optim.Optimizer]:
    """Return two parameters and the optimizer of both."""
    parameters = [torch.nn.Parameter(torch.linspace(-1, n, 6).view(2, 3)) for n in (1, 2)]
    return parameters, torch.optim.SGD(parameters, lr=0.1)


def main() -> None:
    """Run eager and compiled steps side by side and print the differences."""
    (ours, eager), (theirs, optimizer) = make(), make()
    step = torch.compile(optimizer.step, dynamic=False)
    for number in range(STEPS):
        for parameters in (ours, theirs):
            if number == SHARED_FROM:
                parameters[0].data = parameters[1].data
            for parameter in parameters:
                parameter.grad = torch.ones(2, 3)
        eager.step()
        step()
    differences = [(a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True)]
    print(torch.__version__, *differences)


if __name__ == "__main__":
    main()
