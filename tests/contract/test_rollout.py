"""What a rollout computes is the same compiled and eager, with each release."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is only in the cells")
import torch

from ivhl.rollout import Architecture, Policy, evolve, make_parameters


@pytest.mark.full  # on 2.6.0, in `tests-full`
def test_a_group_norm_of_eight_channels_in_float64_is_compiled_right() -> None:
    architecture = Architecture(
        n_channels=2, width=8, depth=1, norm="group", n_groups=2,
        activation="gelu-tanh", boundary="periodic",
    )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    parameters = make_parameters(architecture, generator, n_operators=1)
    state = torch.randn(1, 2, 2, 5, 6, dtype=torch.float64, generator=generator)
    policy = Policy("autoregressive")
    eager, compiled = (
        evolve(architecture, parameters, state, 1, policy=policy, compiled=on)
        for on in (False, True)
    )
    assert torch.allclose(eager, compiled, atol=1e-12)
