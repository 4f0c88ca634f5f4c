# Promised of ivhl.workload (docs/api.md); python -m tests.contract.api writes it.
import contextlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, overload

Compiles = Literal['whole', 'model', 'parts']
@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    flops: float
    bytes: float
    memory: float
Dtype = Literal['float32', 'float64', 'bfloat16', 'float16']
Engine = Literal['compile', 'cuda-graph', 'aotinductor', 'torchscript', 'hotpath', 'eager']
Mode = Literal['default', 'reduce-overhead', 'max-autotune']
Passes = Literal['forward', 'backward', 'step']
@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    name: str
    call: str = ''
    compiles: Compiles = 'whole'
    engine: Engine | str = 'compile'
    dtype: Dtype | None = None
    mode: Mode = 'default'
    dynamic: bool | None = None
    fullgraph: bool = False
    devices: tuple[str, ...] = ('cpu', 'cuda')
    prepare: str | None = None
    finish: str | None = None
@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    name: str
    version: int
    title: str
    sizes: Mapping[str, Any]
    default_size: str
    make_inputs: str
    eager: str = ''
    make_model: str | None = None
    make_optimizer: str | None = None
    passes: Passes | None = None
    loss: str | None = None
    reference: str = 'float64'
    outputs: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = (Variant(name='compiled'),)
    dtype: Dtype = 'float32'
    tolerance: float = 0.0001
    fixed: tuple[int, ...] = ()
    core: str | None = None
    cost: str | None = None
    source: str = ''
def workload(call: object=None, *, inputs: object, **more: Any) -> Workload:
    ...
