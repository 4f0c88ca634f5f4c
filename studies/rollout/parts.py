"""Time parts of the operator of ``ivhl.rollout``, eager and compiled, on one core of a CPU.

``python -m studies.rollout.parts`` prints milliseconds of CPU time: why the compiled operator of
the original was slower than eager there, and by what ``ivhl.rollout`` replaces the two parts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch
from torch.nn import functional

from ivhl.compile import choose_cache_folder
from ivhl.rollout.operator import logistic_gelu, norm_by_channel

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPE: Final = (2, 64, 64, 64)
# Convolutions return channels last; the network of the tables has 16 channels in its first layers.
NARROW: Final = {"8 groups of 2 channels, channels last", "the same by means of channels"}
ROUNDS: Final = 31


def noise(x: torch.Tensor) -> torch.Tensor:
    """Draw random numbers in the graph, as the original does."""
    return torch.randn_like(x)


def instance_norm(x: torch.Tensor) -> torch.Tensor:
    """Normalise each channel, as the original does."""
    return functional.instance_norm(x)


def group_norm(x: torch.Tensor) -> torch.Tensor:
    """Compute the same function with a group for each channel, as ``ivhl.rollout`` does."""
    return functional.group_norm(x, x.shape[1])


def gelu(x: torch.Tensor) -> torch.Tensor:
    """Activate by the error function, as the original does."""
    return functional.gelu(x)


def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    """Activate by tanh, as the strategy document wants."""
    return functional.gelu(x, approximate="tanh")


def few_groups(x: torch.Tensor) -> torch.Tensor:
    """Normalise 8 groups of channels: another model, and what the strategy document wants."""
    return functional.group_norm(x, 8)


def few_groups_by_channel(x: torch.Tensor) -> torch.Tensor:
    """Compute the same from means and variances of channels, as compiled ``ivhl.rollout`` does."""
    return norm_by_channel(x, 8, x.new_ones(x.shape[1]), x.new_zeros(x.shape[1]))


PARTS: Final[dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "`torch.randn_like`": noise,
    "`instance_norm`": instance_norm,
    "`group_norm`, a group for each channel": group_norm,
    "`group_norm`, 8 groups: another model": few_groups,
    "8 groups of 2 channels, channels last": few_groups,
    "the same by means of channels": few_groups_by_channel,
    "`gelu`": gelu,
    "`gelu` by tanh: another model": gelu_tanh,
    "the same as a logistic function": logistic_gelu,
}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m studies.rollout.parts")
    parser.add_argument("--export", type=Path, metavar="FILE", help="write the times as JSON")
    options = parser.parse_args()
    choose_cache_folder()
    torch.set_num_threads(1)
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))
    arms: dict[tuple[str, str], Callable[[], object]] = {}
    narrow = x[:, :16].contiguous(memory_format=torch.channels_last)
    for name, part in PARTS.items():
        taken = narrow if name in NARROW else x
        compiled = torch.compile(part, fullgraph=True)
        compiled(taken)
        arms[name, "eager"] = partial(part, taken)
        arms[name, "compiled"] = partial(compiled, taken)
    best = dict.fromkeys(arms, float("inf"))
    for _ in range(ROUNDS):
        for key, arm in arms.items():
            began = time.process_time()
            arm()
            best[key] = min(best[key], time.process_time() - began)
    rows = []
    for name in PARTS:
        eager, compiled_ms = (1e3 * best[name, form] for form in ("eager", "compiled"))
        print(f"{name:<42} eager {eager:7.2f} ms   compiled {compiled_ms:7.2f} ms")
        rows.append({"part": name, "eager": eager, "compiled": compiled_ms})
    if options.export:
        about = {
            "torch": torch.__version__.partition("+")[0],
            "python": platform.python_version(),
            "load": round(os.getloadavg()[0], 1),
            "rows": rows,
        }
        options.export.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
