"""Declare the comparisons. Pure data, like the workloads; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from benchmarks.condensate import gp_evolve
from benchmarks.field import field_superposition
from benchmarks.mera import tensor_network
from benchmarks.molecules import energy_forces
from benchmarks.recurrent import rnn_gru
from benchmarks.triangulation import cdt_sweep
from benchmarks.vortex import vortex_field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ivhl.workload import Workload

HERE: Final = "studies.peers"

# Too long for a stencil in complex64, so that our operation uses Fourier transforms as well.
LONG_DT: Final = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    """One implementation of a workload.

    Attributes:
        name: Name in the table.
        make: ``"module:function"`` from the workload's inputs to a call without arguments. The call
            returns the outputs of the reference, as tensors, NumPy arrays or lists, and does not
            change the inputs. What a user does once (conversions, plans, contraction paths) is done
            in ``make`` or at the first call, and is not timed. For models that are judged by
            themselves, see ``studies.peers.potentials.Potential``.
        arguments: Keyword arguments of ``make``.
        packages: Distributions whose versions the table shows.
        note: Remark that the table prints for the row.
    """

    name: str
    make: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerComparison:
    """The implementations of one operation that are compared.

    Attributes:
        workload: Provides inputs, reference and naive code (``eager``). If ``judged`` is
            ``reference``, the naive code has a row.
        ours: Our public function, as a user calls it.
        peers: The other implementations, in the order of the table.
        judged: ``reference``: by the workload's reference; ``itself``: each by its float64 twin, if
            no two compute the same function.
    """

    workload: Workload
    ours: Peer
    peers: tuple[Peer, ...]
    judged: Literal["reference", "itself"] = "reference"


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerSuite:
    """Comparisons that share an environment, ``envs/peers/NAME.txt``.

    Attributes:
        comparisons: Comparisons, each with another workload.
        sizes: Default sizes.
        note: Remark on all rows.
    """

    comparisons: tuple[PeerComparison, ...]
    sizes: tuple[str, ...] = ("medium",)
    note: str = ""


_KEOPS_PRODUCT = "KeOps has no product over j, so this sums logarithms and angles"
_OTHER_GRU = (
    "in general another function, which applies the reset gate after the product; on these inputs "
    "the reset gate is open, and both functions agree"
)


def _fourier_peers(dt: float) -> tuple[Peer, ...]:
    return tuple(
        Peer(
            name=name,
            make=f"{HERE}.fourier:{make}",
            arguments={"dt": dt},
            packages=packages,
        )
        for name, make, packages in (
            ("scipy.fft", "make_scipy", ("scipy", "numpy")),
            ("numpy.fft", "make_numpy", ("numpy",)),
            ("pyFFTW", "make_pyfftw", ("pyfftw", "numpy")),
        )
    )


OPERATIONS: Final[tuple[PeerComparison, ...]] = (
    PeerComparison(
        workload=field_superposition.WORKLOAD,
        ours=Peer(name="ivhl", make=f"{HERE}.ours:make_field"),
        peers=(
            Peer(name="KeOps LazyTensor", make=f"{HERE}.keops:make_field", packages=("pykeops",)),
            Peer(
                name="KeOps Genred", make=f"{HERE}.keops:make_field_genred", packages=("pykeops",)
            ),
        ),
    ),
    PeerComparison(
        workload=vortex_field.WORKLOAD,
        ours=Peer(name="ivhl", make=f"{HERE}.ours:make_vortices"),
        peers=(
            Peer(
                name="KeOps LazyTensor",
                make=f"{HERE}.keops:make_vortices",
                packages=("pykeops",),
                note=_KEOPS_PRODUCT,
            ),
            Peer(
                name="KeOps Genred",
                make=f"{HERE}.keops:make_vortices_genred",
                packages=("pykeops",),
                note=_KEOPS_PRODUCT,
            ),
        ),
    ),
    PeerComparison(
        workload=tensor_network.WORKLOAD,
        ours=Peer(name="ivhl", make=f"{HERE}.ours:make_network"),
        peers=(
            Peer(
                name="torch.einsum",
                make=f"{HERE}.networks:make_torch",
                packages=("opt_einsum",),
                note="searches for a path in each call",
            ),
            Peer(
                name="opt_einsum",
                make=f"{HERE}.networks:make_opt_einsum",
                packages=("opt_einsum",),
                note="contract_expression on the path of auto-hq, found once",
            ),
            Peer(
                name="cotengra",
                make=f"{HERE}.networks:make_cotengra",
                packages=("cotengra",),
                note="einsum_expression on the path of auto-hq, found once",
            ),
            Peer(
                name="quimb",
                make=f"{HERE}.networks:make_quimb",
                packages=("quimb", "cotengra"),
                note="TensorNetwork.contract on the tree of auto-hq, found once",
            ),
        ),
    ),
    PeerComparison(
        workload=gp_evolve.WORKLOAD,
        ours=Peer(
            name="ivhl",
            make=f"{HERE}.ours:make_condensate",
            arguments={"dt": gp_evolve.DT},
            note="ivhl computes so short a step by a stencil, exact to rounding",
        ),
        peers=_fourier_peers(gp_evolve.DT),
    ),
    PeerComparison(
        workload=replace(
            gp_evolve.WORKLOAD,
            name="ops.gp_evolve_long_step",
            title="The same with a time step too long for a stencil",
            eager=f"{HERE}.long_step:evolve",
            reference=f"{HERE}.long_step:reference",
        ),
        ours=Peer(
            name="ivhl",
            make=f"{HERE}.ours:make_condensate",
            arguments={"dt": LONG_DT},
            note="two Fourier transforms a step, by MKL",
        ),
        peers=_fourier_peers(LONG_DT),
    ),
    PeerComparison(
        workload=replace(
            rnn_gru.WORKLOAD,
            name="ops.rnn_step_gru",
            title="One step of the gated recurrent unit",
            make_inputs=f"{HERE}.recurrent:make_step_inputs",
            eager="ivhl.ops.gru.cell:gru_step",
            reference=f"{HERE}.recurrent:step_reference",
            outputs=("state",),
        ),
        ours=Peer(name="ivhl", make=f"{HERE}.ours:make_gru_step"),
        peers=(
            Peer(name="nn.GRUCell", make=f"{HERE}.recurrent:make_cell", note=_OTHER_GRU),
            Peer(
                name="nn.GRUCell, compiled",
                make=f"{HERE}.recurrent:make_cell",
                arguments={"compiled": True},
                note=_OTHER_GRU,
            ),
        ),
    ),
    PeerComparison(
        workload=replace(rnn_gru.WORKLOAD, make_inputs=f"{HERE}.recurrent:make_inputs"),
        ours=Peer(name="ivhl", make=f"{HERE}.ours:make_gru"),
        peers=(Peer(name="nn.GRU", make=f"{HERE}.recurrent:make_sequence", note=_OTHER_GRU),),
    ),
    PeerComparison(
        workload=cdt_sweep.WORKLOAD,
        ours=Peer(name="ivhl", make=f"{HERE}.ours:make_sweep"),
        peers=(
            Peer(name="NumPy", make=f"{HERE}.sweep_numpy:make_sweep", packages=("numpy",)),
            Peer(name="plain Python", make=f"{HERE}.sweep_python:make_sweep"),
        ),
    ),
)

_PAIRS_GIVEN = "gets a list of all pairs of atoms, made once"
_COMPILED = "torch.compile of the energy; autograd differentiates the compiled function"
_THROUGH_ASE = "called through ASE, with new positions at each call"


def _torchmdnet_peer(name: str, model: str) -> Peer:
    return Peer(
        name=f"TorchMD-NET {name}",
        make=f"{HERE}.torchmdnet_models:make_model",
        arguments={"model": model},
        packages=("torchmd-net",),
        note="makes its neighbour list in each call",
    )


MOLECULES: Final = ("H2O", "CH4", "C6H6")
MODELS: Final = (
    PeerComparison(
        workload=replace(
            energy_forces.WORKLOAD,
            name="mlff.models",
            title="Energy and forces of one molecule, each model with weights of its own",
            sizes={name: energy_forces.Size(name) for name in MOLECULES},
            default_size="CH4",
        ),
        ours=Peer(
            name="ivhl PaiNN, ahead of time",
            make=f"{HERE}.our_potentials:make_painn",
            arguments={"compiled": "aotinductor"},
            note="compile_ahead: AOTInductor, weights as an input",
        ),
        peers=(
            Peer(
                name="ivhl PaiNN, compiled",
                make=f"{HERE}.our_potentials:make_painn",
                arguments={"compiled": True},
                note="packed_energy_forces by torch.compile, for fixed shapes",
            ),
            Peer(name="ivhl PaiNN, eager", make=f"{HERE}.our_potentials:make_painn"),
            Peer(
                name="ivhl PaiNNCalculator, ahead of time",
                make=f"{HERE}.our_potentials:make_calculator",
                arguments={"compiled": "aotinductor"},
                packages=("ase",),
                note=_THROUGH_ASE,
            ),
            Peer(
                name="ivhl PaiNNCalculator, compiled",
                make=f"{HERE}.our_potentials:make_calculator",
                arguments={"compiled": True},
                packages=("ase",),
                note=_THROUGH_ASE,
            ),
            Peer(
                name="SchNetPack PaiNN",
                make=f"{HERE}.schnetpack_painn:make_painn",
                packages=("schnetpack",),
                note=_PAIRS_GIVEN,
            ),
            Peer(
                name="SchNetPack PaiNN, compiled",
                make=f"{HERE}.schnetpack_painn:make_painn",
                arguments={"compiled": True},
                packages=("schnetpack",),
                note=f"{_PAIRS_GIVEN}; {_COMPILED}",
            ),
            Peer(
                name="SchNetPack SpkCalculator",
                make=f"{HERE}.schnetpack_painn:make_calculator",
                packages=("schnetpack", "ase", "vesin"),
                note=f"{_THROUGH_ASE}; makes its own neighbour list, with vesin",
            ),
            Peer(
                name="TorchANI ANI-2x, x1",
                make=f"{HERE}.torchani_2x:make_ani",
                packages=("torchani",),
                note="one network per element; the number counts the weights of all seven elements",
            ),
            Peer(
                name="TorchANI ANI-2x, x1, compiled",
                make=f"{HERE}.torchani_2x:make_ani",
                arguments={"compiled": True},
                packages=("torchani",),
                note=_COMPILED,
            ),
            Peer(
                name="TorchANI ANI-2x, x8",
                make=f"{HERE}.torchani_2x:make_ani",
                arguments={"n_members": 8},
                packages=("torchani",),
                note="the mean of eight networks, by to_infer_model()",
            ),
            Peer(
                name="MACE 128x0e",
                make=f"{HERE}.mace_model:make_mace",
                arguments={"irreps": "128x0e"},
                packages=("mace-torch",),
                note=_PAIRS_GIVEN,
            ),
            Peer(
                name="MACE 128x0e + 128x1o",
                make=f"{HERE}.mace_model:make_mace",
                arguments={"irreps": "128x0e + 128x1o"},
                packages=("mace-torch",),
                note=_PAIRS_GIVEN,
            ),
            _torchmdnet_peer("ET", "equivariant-transformer"),
            _torchmdnet_peer("TensorNet", "tensornet"),
            Peer(
                name="seed student, eager",
                make=f"{HERE}.our_potentials:make_student",
                note="not rotation invariant and not continuous: [founding.md](founding.md)",
            ),
        ),
        judged="itself",
    ),
)

SUITES: Final[dict[str, PeerSuite]] = {
    "ops": PeerSuite(comparisons=OPERATIONS),
    "mlff": PeerSuite(
        comparisons=MODELS,
        sizes=MOLECULES,
        note=(
            "all weights are random; architectures differ, so errors are of float32 against the "
            "same model in float64"
        ),
    ),
}
