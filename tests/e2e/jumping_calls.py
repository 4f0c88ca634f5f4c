"""Functions of which rounding decides some outputs, honest and with one wrong element; needs torch.

Half of the candidates have a twin that rounding alone tells apart, so eager, float64 and compiled
code choose differently among these. The wrong ones change the first row, which has no twin.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

WIDTH, CODES = 24, 32
# The first rows lie beside a candidate that has no twin.
SURE = 8


def make_rows(size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Return rows and a table of which each code but the first ones has a twin."""
    table = torch.randn(CODES, WIDTH, dtype=torch.float64, generator=generator)
    twins = table[SURE:] * (1 + 2.0**-23)
    rows = torch.randn(size, WIDTH, dtype=torch.float64, generator=generator)
    rows[:SURE] = table[:SURE] + 0.01 * rows[:SURE]
    return rows, torch.cat([table, twins])


def nearest(x: Tensor, table: Tensor) -> Tensor:
    """Return the number of the code that is nearest to each row."""
    done: Tensor = (x[:, None] - table).square().sum(-1).argmin(-1)
    return done


def codes(x: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes and what is looked up by them, as vector quantisation does."""
    found = nearest(x, table)
    return found, torch.nn.functional.embedding(found % CODES, table.sin()) + x


def experts(x: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Return which experts see each row, and what they return together."""
    weights, chosen = (x @ table.T).softmax(-1).topk(2, -1)
    return chosen, (weights[..., None] * table[chosen].tanh()).sum(-2)


def ranks(x: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Return the order of many computed numbers, and one of the rows in that order."""
    score = ((x[:, None] - table).square().sum(-1)).flatten()
    order = score.argsort()
    return order, score.sin()[order]


def masks(x: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Return a mask that rounding decides in every second row, and what it selects."""
    shift = (1.0 - torch.arange(x.shape[0], device=x.device) % 2).to(x.dtype)
    distance = (x[:, None] - table).square().sum(-1)
    kept = distance[:, SURE] + shift > distance[:, CODES]
    return kept, torch.where(kept, x[:, 0], table[0, 0])


def chosen(x: Tensor, table: Tensor) -> Tensor:
    """Return the rows for which a number that rounding decides is not negative."""
    distance = (x[:, None] - table).square().sum(-1)
    lead = distance[:, SURE] - distance[:, CODES]
    lead[1:] = lead[1:].abs()
    return x[lead >= 0] * 2


def counted(x: Tensor, table: Tensor) -> dict[str, Any]:
    """Return whether rounding decides for a candidate, as a value of Python."""
    (found,) = nearest(x[-1:], table[SURE:]).tolist()
    return {"x": x.sin() * 2, "first": found < CODES - SURE}


def sampled(x: Tensor, table: Tensor) -> Tensor:
    """Return codes that are drawn at random."""
    return torch.multinomial((x @ table.T).softmax(-1), 1)


def is_compiled() -> bool:
    """Return whether this is compiled code."""
    done: bool = torch.compiler.is_compiling()
    return done


def one_code(x: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes, of which the first is wrong when compiled."""
    found = nearest(x, table)
    if is_compiled():
        found = torch.cat([(found[:1] + 1) % SURE, found[1:]])
    return found, x.sin() * 2


def one_row(x: Tensor, table: Tensor) -> Tensor:
    """Return what is looked up, of which the first row is wrong when compiled."""
    found, _ = one_code(x, table)
    done: Tensor = torch.nn.functional.embedding(found % CODES, table.sin()) + x
    return done


def one_rank(x: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Return an order, of which the first and the last place are exchanged when compiled."""
    order, score = ranks(x, table)
    if is_compiled():
        order = torch.cat([order[-1:], order[1:-1], order[:1]])
    return order, score


def one_mask(x: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Return a mask, of which the first element is wrong when compiled."""
    kept, x = masks(x, table)
    if is_compiled():
        kept = torch.cat([~kept[:1], kept[1:]])
    return kept, x


def count(x: Tensor, table: Tensor) -> dict[str, Any]:
    """Return an integer in place of the candidate when compiled."""
    found = counted(x, table)
    return found | {"first": 3} if is_compiled() else found


def one_more_chosen(x: Tensor, table: Tensor) -> Tensor:
    """Return chosen rows, and two more when compiled."""
    found = chosen(x, table)
    return torch.cat([found, found[:2]]) if is_compiled() else found


class Quantiser(nn.Module):  # type: ignore[misc]  # no torch here
    """Tokens to codes of a table with twins, trained through the codes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, WIDTH)
        table = torch.randn(CODES, WIDTH)
        self.table = nn.Parameter(torch.cat([table, table * (1 + 2.0**-23)]))
        self.out = nn.Linear(WIDTH, 4)

    def forward(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return codes and scores."""
        x = self.embed(tokens).flatten(0, 1) * mask.flatten()[:, None]
        found = nearest(x, self.table)
        row = self.table[found]
        return found, self.out(x + (row - x).detach())


def make_quantiser(_: int) -> nn.Module:
    """Return a quantiser."""
    return Quantiser()
