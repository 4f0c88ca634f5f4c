"""PaiNN, an equivariant message-passing network: its weights, and the parts of its layer.

Atoms carry scalars ``s`` (shape ``[..., F]``) and vectors ``v`` (``[..., 3, F]``). In a layer every
atom sends a message to every other one within the cutoff, the product of a filter of their distance
and ``perceptron(s, p, "message")``; then each updates its own numbers. How pairs are stored and
messages summed is another matter: ``ivhl.mlff.batch`` has dense squares of pairs,
``ivhl.mlff.edges`` lists of edges.

Source:
    Schütt, Unke and Gastegger, PaiNN, arXiv:2102.03150, eqs. (7)-(10) and fig. 2; the cutoff
    multiplies the filter, its bias included, so that the energy is smooth there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch
from torch.nn.functional import silu

Parameters = dict[str, Any]
Square = Callable[[torch.Tensor], torch.Tensor]
Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

CUTOFF: Final = 5.0  # Å
N_FEATURES: Final = 128
N_INTERACTIONS: Final = 3
N_RADIAL: Final = 20
MAX_ATOMIC_NUMBER: Final = 100
# Added under square roots: the norm of a zero vector has no derivative, and a wrong substitute
# breaks the symmetry of the forces. By symmetry, the carbon of CH4 has zero vectors.
NORM_EPS: Final = 1e-8
# Up to so many rows, a compiled sum of products took less time on an H200 than cuBLAS (docs/gpu.md).
MAX_SUMMED_ROWS: Final = 72
_SHORT: Final = (torch.float16, torch.bfloat16)


def make_parameters(generator: torch.Generator) -> Parameters:
    """Draw random, untrained weights: their energies and forces have no physical meaning.

    Args:
        generator: Source of all random numbers.

    Returns:
        Nested dictionaries and lists of float64 tensors, 589,185 numbers. Weights have shape
        ``[n_in, n_out]`` and variance ``1 / n_in``, so that activations keep their size. Those of
        radial function ``n`` are ``n`` times smaller, as in a smooth filter: energies are then a
        few eV and forces some tenths of an eV/Å.
    """
    f = N_FEATURES
    smooth = 1.0 / torch.arange(1, N_RADIAL + 1, dtype=torch.float64)[:, None]

    def weight(n_in: int, n_out: int) -> torch.Tensor:
        w = torch.randn(n_in, n_out, dtype=torch.float64, generator=generator)
        return w / math.sqrt(n_in)

    def bias(n_out: int) -> torch.Tensor:
        return 0.1 * torch.randn(n_out, dtype=torch.float64, generator=generator)

    def layer() -> Parameters:
        return {
            "message_w1": weight(f, f),
            "message_b1": bias(f),
            "message_w2": weight(f, 3 * f),
            "message_b2": bias(3 * f),
            "filter_w": smooth * weight(N_RADIAL, 3 * f),
            "filter_b": bias(3 * f),
            "mix_u": weight(f, f),
            "mix_v": weight(f, f),
            "update_w1": weight(2 * f, f),
            "update_b1": bias(f),
            "update_w2": weight(f, 3 * f),
            "update_b2": bias(3 * f),
        }

    return {
        "embedding": torch.randn(
            MAX_ATOMIC_NUMBER + 1, f, dtype=torch.float64, generator=generator
        ),
        "layers": [layer() for _ in range(N_INTERACTIONS)],
        "readout_w1": weight(f, f // 2),
        "readout_b1": bias(f // 2),
        "readout_w2": weight(f // 2, 1),
        "readout_b2": bias(1),
    }


def radial_functions(
    d: torch.Tensor, no_pair: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return radial functions ``[..., 20]`` and cutoff ``[...]`` of distances.

    Args:
        d: Distances in Å, any shape, not zero.
        no_pair: Where there is no pair, shape of ``d``, bool: the cutoff is 0 there.
    """
    orders = torch.arange(1, N_RADIAL + 1, dtype=d.dtype, device=d.device)
    radial = torch.sin(orders * (math.pi / CUTOFF) * d[..., None]) / d[..., None]
    cut = 0.5 * (torch.cos(d * (math.pi / CUTOFF)) + 1.0)
    beyond = d >= CUTOFF
    return radial, cut.masked_fill(beyond if no_pair is None else no_pair | beyond, 0.0)


def with_constant(radial: torch.Tensor, cut: torch.Tensor) -> torch.Tensor:
    """Return radial functions times cutoff, ``[..., 21]``: the last function is 1.

    Its weight is the filter's bias (``filter_of``). The cutoff then multiplies 21 numbers per pair
    instead of 384.
    """
    return torch.cat((radial, torch.ones_like(cut)[..., None]), dim=-1) * cut[..., None]


def filter_of(p: Parameters) -> torch.Tensor:
    """Return the filter of a layer, ``[21, 3 F]``, for radial functions ``with_constant``."""
    return torch.cat((p["filter_w"], p["filter_b"][None, :]), dim=0)


def sums_products(x: torch.Tensor) -> bool:
    """Return whether to multiply a matrix of so few rows, ``[..., n_in]``, by ``product_of_few``.

    So where a GPU is compiled for: the sums fuse with what is before and after them, and cuBLAS may
    choose badly (``python -m studies.few_rows``).
    """
    return bool(
        x.device.type == "cuda"
        and torch.compiler.is_compiling()
        and x.shape[:-1].numel() <= MAX_SUMMED_ROWS
    )


def product_of_few(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return ``x @ weight``, of few rows and compiled for a GPU as a sum of products.

    Args:
        x: Shape ``[..., n_in]``.
        weight: Shape ``[n_in, n_out]``.
    """
    return sum_of_products(x, weight) if sums_products(x) else x @ weight


def sum_of_products(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return ``x @ weight`` as a sum over the products, ``[..., n_in, n_out]``."""
    return (x[..., None] * weight).sum(dim=-2)


def perceptron(
    x: torch.Tensor,
    p: Parameters,
    name: str,
    *,
    n_out: int | None = None,
    product: Product = torch.matmul,
) -> torch.Tensor:
    """Return two dense layers with SiLU between them.

    Args:
        x: Shape ``[..., n_in]``.
        p: Weights of a layer, or of the model.
        name: ``message``, ``update`` or ``readout``.
        n_out: How many outputs to compute, the first ones; default: all.
        product: Multiplies by weights: ``product_of_few`` where the number of rows is known when
            this is compiled.
    """
    h = silu(product(x, p[f"{name}_w1"]) + p[f"{name}_b1"])
    if n_out is None:
        return product(h, p[f"{name}_w2"]) + p[f"{name}_b2"]
    return product(h, p[f"{name}_w2"][:, :n_out]) + p[f"{name}_b2"][:n_out]


def update(
    s: torch.Tensor,
    v: torch.Tensor,
    p: Parameters,
    *,
    squared: Square,
    is_last: bool = False,
    product: Product = torch.matmul,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scalars and vectors after each atom's own update.

    Args:
        s: Scalars, shape ``[..., F]``.
        v: Vectors, shape ``[..., 3, F]``.
        p: Weights of the layer.
        squared: See ``norms_of``.
        is_last: Whether nothing reads the vectors afterwards; they are returned as they are.
        product: See ``perceptron``.
    """
    uv, vv = product(v, p["mix_u"]), product(v, p["mix_v"])
    x = torch.cat((s, norms_of(vv, squared=squared)), dim=-1)
    n_out = 2 * s.shape[-1] if is_last else None
    a = perceptron(x, p, "update", n_out=n_out, product=product)
    return gated(s, v, uv, vv, a)


def norms_of(vectors: torch.Tensor, *, squared: Square) -> torch.Tensor:
    """Return the norms ``[..., F]`` of vectors ``[..., 3, F]``.

    Args:
        vectors: Any numbers, zero vectors included.
        squared: Squares numbers: ``torch.square``, or a multiplication by themselves
            (``times_itself``). Both give the same numbers, but differentiate to different
            operations. Every caller keeps the one with which it was measured.
    """
    return (squared(wide_of(vectors)).sum(dim=-2) + NORM_EPS).sqrt().to(vectors.dtype)


def times_itself(x: torch.Tensor) -> torch.Tensor:
    """Return ``x * x``; see ``norms_of``."""
    return x * x


def gated(
    s: torch.Tensor, v: torch.Tensor, uv: torch.Tensor, vv: torch.Tensor, a: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scalars and vectors after the update's own network.

    Args:
        s: Scalars, shape ``[..., F]``.
        v: Vectors, shape ``[..., 3, F]``.
        uv: Vectors mixed by ``mix_u``, shape of ``v``.
        vv: Vectors mixed by ``mix_v``, shape of ``v``.
        a: What the network returns, shape ``[..., 3 F]``; of ``2 F``, ``v`` is returned as it is.
    """
    a_ss, a_sv, *a_vv = a.split(s.shape[-1], dim=-1)
    s = s + a_ss + a_sv * (uv * vv).sum(dim=-2)
    if a_vv:
        v = v + a_vv[0][..., None, :] * uv
    return s, v


def wide_of(vectors: torch.Tensor) -> torch.Tensor:
    """Return the vectors in float32 if their type is shorter.

    In float16 ``NORM_EPS`` underflows to zero, and so does the square of a number below 2e-4: the
    norm would have no derivative there, and forces would be NaN.
    """
    return vectors.float() if vectors.dtype in _SHORT else vectors


def check_molecule(atomic_numbers: torch.Tensor, positions: torch.Tensor) -> None:
    """Check shapes and dtypes of a molecule.

    Raises:
        ValueError: If a shape or a dtype is wrong, or there is no atom.
    """
    if not positions.dtype.is_floating_point:
        raise ValueError(f"positions must be real floating point, got {positions.dtype}")
    if positions.ndim != 2 or positions.shape[1] != 3:  # noqa: PLR2004  (axes, and x, y, z)
        raise ValueError(f"positions must have shape [n_atoms, 3], got {list(positions.shape)}")
    if positions.shape[0] == 0:
        raise ValueError("positions must hold at least one atom, got none")
    if atomic_numbers.dtype != torch.int64:
        raise ValueError(f"atomic_numbers must be int64, got {atomic_numbers.dtype}")
    if atomic_numbers.ndim != 1 or atomic_numbers.shape[0] != positions.shape[0]:
        raise ValueError(
            f"atomic_numbers must have shape [{positions.shape[0]}], one per position, "
            f"got {list(atomic_numbers.shape)}"
        )
