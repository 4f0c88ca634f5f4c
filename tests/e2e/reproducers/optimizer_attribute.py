"""An attribute that an optimizer sets before ``super().__init__`` is lost in compiled code."""

import torch


class Halves(torch.optim.Optimizer):
    """Multiplies parameters by a factor, which is 1 unless an instance has another."""

    factor = 1.0

    def __init__(self, params):
        self.factor = 0.5
        super().__init__(params, {})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.mul_(self.factor)


def step(x):
    parameter = x.clone().requires_grad_()
    Halves([parameter]).step()
    return parameter.detach()


x = torch.ones(4)
print("eager", step(x).tolist())
print("compiled", torch.compile(step)(x).tolist())
