"""PaiNN as a calculator of ASE: energy, forces and stress of ``ase.Atoms``.

Only this module of ``ivhl.mlff`` needs ase and vesin: ``pip install 'ivhl[ase]'``.
"""

from __future__ import annotations

import functools
import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import torch
from ase.calculators.calculator import Calculator, all_changes
from ase.cell import Cell
from ase.data import chemical_symbols
from vesin import NeighborList

from ivhl.compile import (
    MODES,
    CompileFallbackWarning,
    compile_report,
    describe,
    get_compile_mode,
    get_compiled,
    is_measuring,
    when_cleared,
)
from ivhl.device import get_device
from ivhl.mlff.ahead import compile_ahead
from ivhl.mlff.atoms import MIN_DISTANCE, check_distances, refuse_overlap
from ivhl.mlff.batch import (
    BUCKETS,
    batch_energies_forces,
    batch_energies_forces_one_graph,
    bucket_of,
)
from ivhl.mlff.edges import edge_energies_forces, edge_energies_forces_one_graph, stress_of
from ivhl.mlff.painn import CUTOFF, Parameters
from ivhl.mlff.parameters import (
    REFERENCE_ENERGIES,
    add_reference_energies,
    cast_parameters,
    check_parameters,
    join_parameters,
    list_known_elements,
)
from ivhl.mlff.weights import load_painn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ase import Atoms

    from ivhl.compile import Mode

    Results = dict[str, Any]

AHEAD: Final = "aotinductor"
# Compiled by PyTorch 2.5.1 and 2.6.0, lists of edges have wrong energies; by 2.15.0, right ones.
# Releases between were not tested.
COMPILES_EDGES: Final = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)
MIN_SKEWNESS: Final = 1e-6  # volume or area of a cell over that of a box with the same edges


class PaiNNCalculator(Calculator):
    """PaiNN for ASE: energy and free energy in eV, forces in eV/Å, stress in eV/Å³.

    Molecules of up to 64 atoms are computed over all pairs of atoms, larger or periodic systems over
    a list of edges from vesin's neighbour list. Both forms are the same model. The calculator
    computes again only if positions, numbers, cell or periodicity have changed. It returns a stress
    if a direction is periodic and the cell has a volume.

    If it compiles, the calculator pads a molecule to a bucket of ``ivhl.mlff.batch.BUCKETS``. All
    molecules of a bucket, and all calculators of this dtype, device and mode, share one graph. Lists
    of edges of all lengths share one graph. If compiling fails (``ivhl.compile``), and for lists of
    edges before PyTorch 2.15, the calculator runs eagerly and warns.

    Args:
        parameters: Weights, in the form of ``painn.make_parameters``; default: the trained ones.
        compile: ``False`` runs eagerly, without waiting for a compiler. ``True`` compiles at the
            first call for each bucket, in the mode for the device. A name of ``ivhl.compile.MODES``
            compiles in that mode. ``"aotinductor"`` compiles molecules ahead of time
            (``ivhl.mlff.ahead``), which has the fastest calls and is reused by later processes;
            lists of edges then run as with ``True``.
        device: Device to compute on; default: ``ivhl.device.get_device()``.
        dtype: Precision of the network. Reference energies are added in float64.

    Raises:
        ValueError: If the weights belong to another model, or ``compile`` or ``dtype`` is not
            valid. From a calculation: if there is no atom, an element is unknown, a position is not
            finite, two atoms overlap, or a periodic cell has no volume.
    """

    implemented_properties: ClassVar[list[str]] = ["energy", "free_energy", "forces", "stress"]
    # The model does not use them.
    ignored_changes: ClassVar[set[str]] = {"initial_charges", "initial_magmoms"}

    def __init__(
        self,
        parameters: Parameters | None = None,
        *,
        compile: bool | Mode | Literal["aotinductor"] = False,  # noqa: A002  (public name)
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        names = (*MODES, AHEAD)
        if not isinstance(compile, bool) and compile not in names:
            raise ValueError(
                f"compile must be True, False or one of {', '.join(names)}, got {compile!r}"
            )
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise ValueError(f"dtype must be real floating point, got {dtype}")
        super().__init__()
        weights = load_painn() if parameters is None else parameters
        check_parameters(weights)
        self.device = get_device() if device is None else torch.device(device)
        self.dtype = dtype
        self.compile = compile
        # ASE writes these beside results, e.g. in a trajectory
        self.parameters.update(
            compile=compile, device=str(self.device), dtype=str(dtype).removeprefix("torch.")
        )
        self._known = frozenset(list_known_elements(weights))
        cast = cast_parameters(weights, dtype=dtype, device=self.device)
        # Added outside of the graph, which then has one input less
        self._references = {
            name: cast.pop(name).cpu() for name in (REFERENCE_ENERGIES,) if name in cast
        }
        self._network: Parameters = cast
        self._joined = join_parameters(cast) if compile == AHEAD else None
        self._neighbours = NeighborList(cutoff=CUTOFF, full_list=True, sorted=True)
        self._graphs: set[str] = set()
        self._ahead: set[int] = set()
        self._molecule: _Molecule | None = None

    def set(self, **changes: object) -> dict[str, object]:
        """Refuse changes: ASE would store them, but they would have no effect.

        Raises:
            ValueError: If there is anything to change.
        """
        if changes:
            raise ValueError(
                f"a PaiNNCalculator cannot be changed, got {', '.join(sorted(changes))}; "
                "make a new one"
            )
        return {}

    @property
    def n_compiled_graphs(self) -> int:
        """Number of compiled graphs among those that this calculator has used.

        At most one per bucket; for lists of edges one, and those for single atoms. Calculators of
        the same dtype, device and mode share graphs.
        """
        frames = (f.frames for f in compile_report().functions if f.name in self._graphs)
        return len(self._ahead) + sum(frames)

    def check_state(self, atoms: Atoms, tol: float = 1e-15) -> list[str]:  # noqa: ARG002  (ASE's)
        """Return what has changed since the last calculation, by exact comparison.

        ASE's own method compares within a tolerance of 1e-15, which is slower.

        Args:
            atoms: Atoms to compare with those of the last calculation.
            tol: Ignored.
        """
        if self.atoms is None:
            return list(all_changes)
        before, now = self.atoms, atoms
        same = {
            "positions": _are_equal(before.positions, now.positions),
            "numbers": _are_equal(before.numbers, now.numbers),
            "cell": _are_equal(before.cell.array, now.cell.array),
            "pbc": _are_equal(before.pbc, now.pbc),
        }
        return [name for name, is_same in same.items() if not is_same]

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: Sequence[str] | None = None,
        system_changes: Iterable[str] = all_changes,
    ) -> None:
        """Compute all properties of these atoms into ``results``.

        Args:
            atoms: Default: those of the last calculation.
            properties: Ignored, since one graph computes all.
            system_changes: Ignored.

        Raises:
            ValueError: See the class.
        """
        self.results = {}  # on failure, no results of another geometry may remain
        super().calculate(atoms, properties, system_changes)
        if self.atoms is None:
            raise ValueError("atoms must be given to the first calculation, got none")
        molecule = self._molecule_of(self.atoms)
        with torch.no_grad():
            if len(self.atoms) <= BUCKETS[-1] and not self.atoms.pbc.any():
                self.results = self._calculate_dense(self.atoms, molecule)
            else:
                self.results = self._calculate_edges(self.atoms, molecule)

    def _calculate_dense(self, atoms: Atoms, molecule: _Molecule) -> Results:
        positions = _positions(atoms.positions)
        check_distances(positions)
        run, weights = self._dense_function(molecule.length)
        padded = torch.zeros(1, molecule.length, 3, dtype=self.dtype, device="cpu")
        padded[0, : len(atoms)] = positions
        energies, forces = run(weights, molecule.padded, padded.to(self.device))
        return self._as_results(molecule, energies[0], forces[0, : len(atoms)])

    def _dense_function(self, length: int) -> tuple[Callable[..., Any], Any]:
        """Return the function for molecules of this length, and the weights in the form it takes."""
        if self._joined is not None:
            ahead = _compile_ahead(length, self.dtype, self.device)
            if ahead is not None:
                self._ahead.add(length)
                return ahead, self._joined
        elif self.compile:
            return self._compiled(_compile_dense, length), self._network
        return batch_energies_forces, self._network

    def _calculate_edges(self, atoms: Atoms, molecule: _Molecule) -> Results:
        cell = _checked_cell(atoms)
        where = atoms.get_positions(wrap=True) if atoms.pbc.any() else atoms.get_positions()
        positions = _positions(where)
        pairs, offsets, distances = self._neighbours.compute(
            points=where, box=cell, periodic=atoms.pbc, quantities="PSd"
        )
        _check_edges(pairs, distances)
        edges = torch.from_numpy(pairs.astype("int64")).T.contiguous()
        shifts = torch.from_numpy(offsets @ cell)
        run = self._edges_function()
        inputs = [
            x.to(self.device)
            for x in (molecule.numbers, positions.to(self.dtype), edges, shifts.to(self.dtype))
        ]
        energies, forces, virials = run(self._network, *inputs)
        results = self._as_results(molecule, energies[0], forces)
        if atoms.pbc.any() and atoms.cell.rank == 3:  # noqa: PLR2004  (it has a volume)
            volume = torch.tensor(atoms.get_volume(), device="cpu")
            stress = stress_of(virials[0].double().cpu(), volume)
            results["stress"] = stress.numpy()
        return results

    def _as_results(
        self, molecule: _Molecule, energy: torch.Tensor, forces: torch.Tensor
    ) -> Results:
        whole = float(energy) + molecule.reference_energy
        # Without electronic temperature both are equal; ASE's optimisers use the free energy.
        return {"energy": whole, "free_energy": whole, "forces": forces.double().cpu().numpy()}

    def _edges_function(self) -> Callable[..., Any]:
        if self.compile and not COMPILES_EDGES:
            warnings.warn(
                "ivhl: a list of edges runs eagerly: some PyTorch before 2.15 compile it to wrong "
                f"numbers, and this is {torch.__version__}",
                CompileFallbackWarning,
                stacklevel=4,
            )
        elif self.compile:
            return self._compiled(_compile_edges)
        return edge_energies_forces

    def _compiled(
        self, make: Callable[..., tuple[str, Callable[..., Any]]], *which: int
    ) -> Callable[..., Any]:
        mode = None if self.compile in {True, AHEAD} else self.compile
        name, function = make(*which, mode, self.dtype, self.device)
        self._graphs.add(name)
        return function

    def _molecule_of(self, atoms: Atoms) -> _Molecule:
        """Return the data that depend on the elements only, computed again when these change."""
        _check_positions(atoms)
        array = atoms.numbers.astype("int64")
        key = array.tobytes()
        if self._molecule is None or self._molecule.key != key:
            self._check_elements(atoms)
            numbers = torch.from_numpy(array)
            length = len(atoms)
            if self.compile and length <= BUCKETS[-1]:
                length = bucket_of(length)
            padded = torch.zeros(1, length, dtype=torch.int64, device="cpu")
            padded[0, : len(atoms)] = numbers
            zero = torch.zeros((), dtype=torch.float64, device="cpu")
            self._molecule = _Molecule(
                key=key,
                numbers=numbers,
                length=length,
                padded=padded.to(self.device),
                reference_energy=float(add_reference_energies(self._references, numbers, zero)),
            )
        return self._molecule

    def _check_elements(self, atoms: Atoms) -> None:
        for place, number in enumerate(atoms.numbers.tolist()):
            if number not in self._known:
                known = ", ".join(chemical_symbols[z] for z in sorted(self._known))
                raise ValueError(
                    f"atoms[{place}] must be an element that the weights know, {known}; "
                    f"got {_symbol(number)}. Use weights that were trained with it"
                )


@dataclass(frozen=True, slots=True)
class _Molecule:
    """Data that depend on the elements only.

    Attributes:
        key: The atomic numbers as bytes.
        numbers: Atomic numbers, int64, on the CPU.
        length: Number of atoms, or the bucket that they are padded to.
        padded: Atomic numbers, shape ``[1, length]``, on the device.
        reference_energy: Energy of the separate atoms, in eV.
    """

    key: bytes
    numbers: torch.Tensor
    length: int
    padded: torch.Tensor
    reference_energy: float


# Buckets that failed to compile ahead of time: each is tried, and warned about, once
_failed: set[tuple[object, ...]] = set()
when_cleared(_failed.clear)


def _compile_ahead(
    length: int, dtype: torch.dtype, device: torch.device
) -> Callable[..., Any] | None:
    """Return the function of a bucket; warn and return ``None`` if it cannot be compiled."""
    if get_compile_mode(device) is None:
        return None  # the mode is set to eager
    key = (length, dtype, device, torch.get_num_threads())
    if key in _failed and not is_measuring():
        return None
    try:
        return compile_ahead(length, dtype=dtype, device=device)
    except MemoryError:
        raise
    except Exception as error:
        if is_measuring():
            raise
        _failed.add(key)
        warnings.warn(
            f"ivhl: molecules of up to {length} atoms run eagerly from now on, since they could not "
            f"be compiled ahead of time: {describe(error)}",
            CompileFallbackWarning,
            stacklevel=5,
        )
        return None


@functools.cache
def _compile_dense(
    length: int, mode: Mode | None, dtype: torch.dtype, device: torch.device
) -> tuple[str, Callable[..., Any]]:
    """Return name and function of a bucket; each function has its own recompile limit."""

    def dense(*inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
        if torch.compiler.is_dynamo_compiling():
            return batch_energies_forces_one_graph(*inputs)
        return batch_energies_forces(*inputs)  # after a fallback: faster eagerly

    dense.__qualname__ = f"dense[{length}, {_describe(mode, dtype, device)}]"
    function = get_compiled(dense, mode=mode, dynamic=False, fullgraph=True)
    return f"{__name__}.{dense.__qualname__}", function


@functools.cache
def _compile_edges(
    mode: Mode | None, dtype: torch.dtype, device: torch.device
) -> tuple[str, Callable[..., Any]]:
    """Return name and function for lists of edges of any length."""

    def edges(*inputs: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # noqa: ANN401
        return edge_energies_forces_one_graph(*inputs)

    edges.__qualname__ = f"edges[{_describe(mode, dtype, device)}]"
    function = get_compiled(edges, mode=mode, fullgraph=True)

    # Not dynamic=True, which would make the sizes of the weights dynamic too
    def call(
        parameters: Parameters,
        numbers: torch.Tensor,
        positions: torch.Tensor,
        pairs: torch.Tensor,
        shifts: torch.Tensor,
    ) -> Any:  # noqa: ANN401
        from torch._dynamo import maybe_mark_dynamic  # noqa: PLC0415  (seconds)

        for tensor, axis in ((numbers, 0), (positions, 0), (pairs, 1), (shifts, 0)):
            maybe_mark_dynamic(tensor, axis)
        return function(parameters, numbers, positions, pairs, shifts)

    return f"{__name__}.{edges.__qualname__}", call


def _describe(mode: Mode | None, dtype: torch.dtype, device: torch.device) -> str:
    return f"{str(dtype).removeprefix('torch.')}, {device}" + (f", {mode}" if mode else "")


def _positions(positions: Any) -> torch.Tensor:  # noqa: ANN401  (an array of NumPy)
    """Return positions relative to their mean: float32 has few digits far from the origin."""
    return torch.from_numpy(positions - positions.mean(axis=0))


def _are_equal(one: Any, other: Any) -> bool:  # noqa: ANN401  (arrays of NumPy)
    return one.shape == other.shape and bool((one == other).all())


def _check_positions(atoms: Atoms) -> None:
    if len(atoms) == 0:
        raise ValueError("atoms must hold at least one atom, got none")
    # A fast test: the sum is finite unless a position is not, or is huge
    if math.isfinite(atoms.positions.sum()):
        return
    finite = torch.from_numpy(atoms.positions).isfinite().all(dim=1)
    if not bool(finite.all()):
        place = int(finite.logical_not().nonzero()[0, 0])
        raise ValueError(
            f"atoms[{place}] must have a finite position, got "
            f"{atoms.positions[place].tolist()}: see the step that moved it"
        )


def _symbol(number: int) -> str:
    if not 0 < number < len(chemical_symbols):
        return f"atomic number {number}"
    return f"{chemical_symbols[number]} ({number})"


def _check_edges(pairs: Any, distances: Any) -> None:  # noqa: ANN401  (arrays of NumPy)
    if len(distances) == 0 or distances.min() >= MIN_DISTANCE:
        return
    place = int(distances.argmin())
    refuse_overlap(int(pairs[place, 0]), int(pairs[place, 1]), float(distances[place]))


def _checked_cell(atoms: Atoms) -> Any:  # noqa: ANN401  (an array of NumPy)
    """Return cell vectors ``[3, 3]`` in Å, with missing ones filled in along non-periodic axes."""
    if not atoms.pbc.any():
        return Cell.new([1.0, 1.0, 1.0]).array  # no images, so the cell does not matter
    lengths = atoms.cell.lengths()
    for axis in range(3):
        if not float(lengths[axis]) < float("inf"):
            raise ValueError(f"cell vector {axis} must be finite, got {atoms.cell[axis].tolist()}")
        if atoms.pbc[axis] and lengths[axis] < MIN_DISTANCE:
            raise ValueError(
                f"cell vector {axis} must be at least {MIN_DISTANCE} Å long where pbc is set, "
                f"got {atoms.cell[axis].tolist()}: set the cell, or pbc=False"
            )
    # Only of the vectors that are set: ASE derives the others from them
    directions = torch.from_numpy(atoms.cell.array[lengths > 0.0] / lengths[lengths > 0.0, None])
    if float(torch.linalg.det(directions @ directions.T)) < MIN_SKEWNESS**2:
        raise ValueError(
            f"cell must have a volume where pbc is set, got vectors in one plane, "
            f"{atoms.cell.tolist()}: set the cell, or pbc=False"
        )
    return atoms.cell.complete().array
