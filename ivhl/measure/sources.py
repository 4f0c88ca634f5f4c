"""Hash the code and data of a project that a case reaches, and of the benchmarks that it reaches.

If two commits have the same hashes, the case measures the same code in both. If the benchmarks are
part of the installed project, the project's hash includes them. Whenever it is uncertain whether a
case reaches something, it counts as reached: the hash rather changes too often than too rarely.

A module is *reached* if a function of the case is in it, or if a reached module imports it, at any
place. Its syntax tree and the data files of the packages around it are in the hash. Importing a
module also *runs* the ``__init__`` of these packages and what they import; these are in the hash
only if they do more than define names (``_Reach.has_side_effects``). Otherwise a list of all
workloads, or a package that exports all operations, would make all cases reach each other.

Other distributions are not in the hash, because lock and wheels identify them; nor is the measuring
code, which has a version.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import json
import os
import re
import sys
import sysconfig
from dataclasses import fields, is_dataclass
from fnmatch import fnmatch
from functools import cache, cached_property
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import entry_points, packages_distributions
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ivhl.measure.harness import is_harness
from ivhl.measure.syntax import defined_by, is_for_type_checkers, syntax_digest
from ivhl.workload import backend_of, load_workloads, named_cases, uses_dynamo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ivhl.workload import Case

# Modules that never belong to a project, wherever their files are.
_NO_PROJECT: Final = frozenset({"__main__", "__mp_main__", "sitecustomize", "usercustomize"})
# Modules of the standard library without side effects.
_PURE: Final = frozenset(
    {
        *("__future__", "abc", "bisect", "cmath", "collections", "copy", "dataclasses"),
        *("datetime", "decimal", "enum", "fractions", "functools", "itertools", "math"),
        *("numbers", "operator", "pathlib", "re", "statistics", "string", "textwrap"),
        *("types", "typing"),
    }
)
_PURE_BUILTINS: Final = frozenset(
    {
        *("abs", "all", "any", "bool", "bytes", "complex", "dict", "divmod", "enumerate"),
        *("float", "frozenset", "int", "isinstance", "len", "list", "max", "min", "object"),
        *("pow", "property", "range", "repr", "reversed", "round", "set", "slice", "sorted"),
        *("staticmethod", "classmethod", "str", "sum", "tuple", "type", "zip"),
    }
) | {
    name
    for name, one in vars(builtins).items()
    if isinstance(one, type) and issubclass(one, BaseException)
}
# Functions and methods that change their object or an argument, or that run unknown code.
_SETTERS: Final = frozenset(
    {
        *("add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert"),
        *("pop", "popitem", "register", "remove", "reverse", "setdefault", "sort", "update"),
        *("__import__", "__setattr__", "__setitem__", "compile", "delattr", "eval", "exec"),
        *("globals", "import_module", "locals", "next", "open", "setattr", "send", "vars"),
        *("__delattr__", "__delitem__", "__iadd__", "__ior__", "delitem", "iadd", "insort"),
        *("insort_left", "insort_right", "ior", "mkdir", "setitem", "touch", "unlink", "write"),
        *("write_bytes", "write_text"),
    }
)
_IMPORTERS: Final = frozenset({"import_module", "__import__"})
_HOTPATH: Final = "ivhl.hotpath"
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


class Sources(NamedTuple):
    """Hashes of 64 hex digits.

    Attributes:
        project: What the case reaches in the project; if ``benchmark`` is ``None``, also the
            declaration.
        benchmark: What it reaches in a folder of benchmarks, and the declaration.
    """

    project: str
    benchmark: str | None


def reached_sources(case: Case, workloads: str, project_name: str, *, ran: bool = True) -> Sources:
    """Return the hashes of what a case reaches.

    Args:
        case: Its module of workloads must be imported; those of its functions need not be.
        workloads: See ``ivhl.workload.load_workloads``.
        project_name: Name of the installed project.
        ran: Whether this process has run this case and no other one. Then modules that it imported
            by a computed name are in the hash as well; for other cases the hash does not differ.
    """
    home, attribute, _ = workloads.partition(":")
    project = _Project(home, project_name)
    reach = _Reach(project)
    for reference in _functions(case):
        reach.take(reference.partition(":")[0])
    # Of ivhl's own cases it is part of the project, and the measuring code imports it.
    if case.variant.engine == "hotpath":
        reach.take(_HOTPATH)
    reach.run(project.home)
    for name in () if attribute else project.below(home):
        if name.rpartition(".")[0] == home:
            reach.run(name)
    size = case.workload.sizes[case.size]
    # The class of a size may have methods, so its module counts, but without its workloads: this
    # case's part of them is hashed by value.
    declaring = {name for name in _modules_of(size) if project.has(name)} - reach.reached
    for name in declaring:
        reach.follow(name)
    # Modules imported by a computed name.
    places = {project.place_of(name) for name in (*reach.ran, project.home, *project.tops)}
    places |= {Path(text) for text in os.environ.get("PYTHONPATH", "").split(os.pathsep) if text}
    for name in sorted(sys.modules) if ran else ():
        # Excludes modules that torch writes into a temporary folder and imports from there.
        if name not in reach.ran and project.has(name) and project.place_of(name) in places:
            reach.take(name)
    parts = [f"{name} {_digest(project.file(name))}" for name in reach.reached]
    parts += [
        f"{name} {_digest(project.file(name), _declarations(name))}"
        for name in declaring - reach.reached
    ]
    parts += [f"imports {name}" for name in reach.others]
    counted = reach.reached | declaring
    parts += _data(project, counted, set().union(*map(reach.strings, counted)))
    if attribute:
        return Sources(_hash([*parts, _declared(case)]), None)
    theirs = [part for part in parts if re.match(rf"{home}[./ ]", part)]
    others = [part for part in parts if part not in theirs]
    return Sources(_hash(others), _hash([*theirs, _declared(case)]))


def _hash(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()


def _functions(case: Case) -> Iterator[str]:
    workload, variant = case.workload, case.variant
    named = (
        *(workload.make_inputs, workload.eager, workload.make_model, workload.make_optimizer),
        *(workload.loss, workload.reference, variant.call, variant.prepare, variant.finish),
    )
    yield from (name for name in named if name and ":" in name)
    # A back end that the project itself may add.
    if backend := backend_of(variant.engine):
        yield from (p.value for p in entry_points(group="torch_dynamo_backends", name=backend))


def _declared(case: Case) -> str:
    """Return this case's part of the declaration as text.

    Fields with their default value are left out, so that a new field with a default changes no hash.
    """
    workload, variant = case.workload, case.variant
    beside = {"title", "sizes", "default_size", "variants", "cost", "source", "devices"}
    # False was the default when the first records were made. Other engines do not use it.
    if variant.dynamic is False or not uses_dynamo(variant.engine):
        beside.add("dynamic")
    parts = [
        (type(one).__name__, field.name, getattr(one, field.name))
        for one in (workload, variant)
        for field in fields(one)
        if field.name not in beside
        and (field.name == "dynamic" or getattr(one, field.name) != field.default)
    ]
    return _ADDRESS.sub("", ascii([*parts, workload.sizes[case.size]]))


def _modules_of(value: object) -> set[str]:
    """Return the modules that define the types of a value and of the values inside it."""
    inner: Iterable[object] = ()
    if is_dataclass(value):
        inner = [getattr(value, field.name) for field in fields(value)]
    elif isinstance(value, dict):
        inner = [*value, *value.values()]
    elif isinstance(value, tuple | list | set | frozenset):
        inner = value
    return {type(value).__module__}.union(*map(_modules_of, inner))


def _declarations(module: str) -> list[str]:
    """Return the names of an imported module that are bound to a workload or a list of workloads."""

    def is_workload(value: object) -> bool:
        if isinstance(value, tuple | list):
            return bool(value) and all(map(is_workload, value))
        return type(value).__name__ == "Workload"

    return [name for name, value in vars(sys.modules[module]).items() if is_workload(value)]


def _digest(path: Path, without: Iterable[str] = ()) -> str:
    return _digest_of(path.read_bytes(), tuple(without))


# Cached by content: the cases of a run share most of their modules.
@cache
def _digest_of(content: bytes, without: tuple[str, ...]) -> str:
    try:
        return syntax_digest(content, annotations=True, without=[*without])
    except (SyntaxError, ValueError, RecursionError):  # not valid in this Python
        return hashlib.sha256(content).hexdigest()


@cache
def _tree_of(content: bytes) -> ast.Module:
    try:
        return ast.parse(content)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


@cache
def _nodes_of(content: bytes, *, inside_functions: bool) -> tuple[ast.AST, ...]:
    return tuple(_running(_tree_of(content), inside_functions=inside_functions))


@cache
def _importing_of(content: bytes, *, inside_functions: bool) -> tuple[ast.AST, ...]:
    """Return the nodes that import something, or call a function that does."""
    return tuple(
        node
        for node in _nodes_of(content, inside_functions=inside_functions)
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Call) and _last_name(node.func) in _IMPORTERS)
    )


@cache
def _strings_of(content: bytes) -> frozenset[str]:
    """Return the string constants of a module, which may name files."""
    return frozenset(
        node.value
        for node in ast.walk(_tree_of(content))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _data(project: _Project, modules: Iterable[str], texts: Iterable[str]) -> Iterator[str]:
    """Yield name and hash of each data file that some modules may read.

    These are the files of the packages around the modules, and those files of the project's other
    packages that a string in the modules names: by package, file name, extension or pattern.
    """
    around = {package for module in modules for package in project.packages_of(module)}
    names = {text.rpartition("/")[2] for text in texts if len(text) > 1}
    for top in {package.partition(".")[0] for package in around}:
        for package in {top, *project.packages_below(top)}:
            for folder in project.folders(package):
                for path in _files_in(folder):
                    if package in around | names or any(_is_named(path.name, n) for n in names):
                        name = path.relative_to(folder).as_posix()
                        yield f"{package}/{name} {hashlib.sha256(path.read_bytes()).hexdigest()}"


def _is_named(file: str, text: str) -> bool:
    """Return whether a string may name a file: by its name, stem, extension or a pattern."""
    if "*" in text or "?" in text:
        return fnmatch(file, text) and text.strip("*?.") != ""
    stem = file.partition(".")[0]
    return text in {file, stem} or (text[0] == "." and file.endswith(text))


def _files_in(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name.endswith("~") or path.name == "__pycache__":
            continue
        # The data of a subpackage belongs to that package.
        if path.is_dir() and not (path / "__init__.py").is_file():
            yield from _files_in(path)
        # What type checkers alone read changes nothing that runs.
        elif path.is_file() and path.suffix not in {".py", ".pyc"} and path.name != "py.typed":
            yield path


class _Project:
    """Finds the modules of a project without importing them, so it does not need torch.

    Args:
        home: The module of all workloads, or the package of benchmarks.
        name: Name of the installed project.
    """

    def __init__(self, home: str, name: str) -> None:
        self.home = home
        self._home_top = home.partition(".")[0]
        self._name = _normalized(name)
        self.has = cache(self._has)
        self.folders = cache(self._folders)
        self.owns = cache(self._is_owner)

    def file(self, module: str) -> Path:
        """Return the file of a module of the project."""
        path = self._find(module)
        assert path is not None  # noqa: S101  (callers have checked has())
        return path

    def place_of(self, module: str) -> Path:
        """Return the folder that contains the module's top-level package or module."""
        top = module.partition(".")[0]
        folders = self.folders(top)
        return (folders[-1] if folders else self.file(top)).parent

    @cached_property
    def tops(self) -> tuple[str, ...]:
        """The top-level packages and modules that the project's distribution has installed."""
        listed = {top for top in _all_distributions() if self._name in _distributions(top)}
        # An editable installation lists no files.
        named = sorted(listed | {self._name.replace("-", "_")})
        return tuple(top for top in named if self.has(top) or self.is_package(top))

    def is_package(self, module: str) -> bool:
        """Return whether it is a package of the project."""
        return self.owns(module.partition(".")[0]) and bool(self.folders(module))

    def packages_of(self, module: str) -> list[str]:
        """Return the packages around a module, outermost first; a package includes itself."""
        names = accumulate(module.split("."), "{}.{}".format)
        return [name for name in names if self.is_package(name)]

    def below(self, package: str) -> Iterator[str]:
        """Yield every module in a package, at any depth."""
        for folder in self.folders(package):
            for path in sorted(folder.iterdir()):
                name = f"{package}.{path.name.partition('.')[0]}"
                if path.stem != "__init__" and self.has(name):
                    yield name
                if path.is_dir() and path.name.isidentifier() and path.name != "__pycache__":
                    yield from self.below(name)

    def packages_below(self, package: str) -> Iterator[str]:
        """Yield every package in a package, at any depth."""
        for folder in self.folders(package):
            for path in sorted(folder.iterdir()):
                name = f"{package}.{path.name}"
                if (path / "__init__.py").is_file() and not is_harness(name):
                    yield name
                    yield from self.packages_below(name)

    def _has(self, module: str) -> bool:
        if is_harness(module) or module in _NO_PROJECT:
            return False
        return self.owns(module.partition(".")[0]) and self._find(module) is not None

    def _find(self, module: str) -> Path | None:
        package, dot, name = module.rpartition(".")
        files = [folder / "__init__.py" for folder in self.folders(module)]
        if dot:
            endings = (".py", *EXTENSION_SUFFIXES)
            files += [f / f"{name}{ending}" for f in self.folders(package) for ending in endings]
        elif not files and (path := _file_of_top(module)):
            files.append(path)
        return next((file for file in files if file.is_file()), None)

    def _folders(self, package: str) -> tuple[Path, ...]:
        """Return the folders of a package; empty for other modules."""
        parent, dot, name = package.rpartition(".")
        loaded = sys.modules.get(package)
        if loaded is not None:
            places = getattr(loaded, "__path__", ())
        elif dot:
            places = [folder / name for folder in self.folders(parent)]
        else:
            spec = _spec(package)
            places = (spec and spec.submodule_search_locations) or ()
        return tuple(folder for folder in map(Path, places) if folder.is_dir())

    def _is_owner(self, top: str) -> bool:
        """Return whether a top-level name is in the project's distribution, or in none."""
        if top == self._home_top:
            return True
        if top in sys.stdlib_module_names or top in _NO_PROJECT:
            return False
        if top == "ivhl" and self._name != "ivhl":
            return False
        file = _file_of_top(top)
        places = [*self.folders(top), *([file] if file else [])]
        if any({"site-packages", "dist-packages"} & set(place.parts) for place in places):
            ours = _distributions(self._home_top) | {self._name}
            return bool(_distributions(top) & ours)
        library = sysconfig.get_path("stdlib")
        return any(not place.is_relative_to(library) for place in places)


def is_of_project(top: str, workloads: str, project_name: str) -> bool:
    """Return whether a top-level name belongs to the project, or would if it existed."""
    project = _Project(workloads.partition(":")[0], project_name)
    return _normalized(top) == _normalized(project_name) or project.owns(top)


def _distributions(top: str) -> frozenset[str]:
    return frozenset(map(_normalized, _all_distributions().get(top, ())))


# It reads every installed file's name: once per process is enough.
_all_distributions = cache(packages_distributions)


def _normalized(name: str) -> str:
    """Return the normalised name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _spec(top: str) -> Any:  # noqa: ANN401  (a ModuleSpec, or None)
    try:
        return find_spec(top)
    except (ImportError, ValueError):
        return None


def _file_of_top(top: str) -> Path | None:
    """Return the file of a top-level module; ``None`` if it has none."""
    origin = getattr(sys.modules.get(top), "__file__", None)
    if origin is None and top not in sys.modules:
        spec = _spec(top)
        origin = spec.origin if spec is not None and spec.has_location else None
    return None if origin is None else Path(origin)


class _Import(NamedTuple):
    """One name that an import statement binds.

    Attributes:
        module: Absolute name of the module.
        name: Name imported from it; ``None`` for the module itself, ``*`` for all names.
        bound: Name that the statement binds.
    """

    module: str
    name: str | None
    bound: str


class _Reach:
    """Follows imports from module to module.

    Attributes:
        reached: Reached modules.
        ran: Modules that run when these are imported, all checked for side effects.
        others: Modules outside of the project that those in ``ran`` import.
    """

    def __init__(self, project: _Project) -> None:
        self._project = project
        self._content = cache(self._read)
        self._names: set[tuple[str, str]] = set()
        self._plain: dict[str, bool] = {}
        self.reached: set[str] = set()
        self.ran: set[str] = set()
        self.others: set[str] = set()

    def _read(self, module: str) -> bytes:
        return self._project.file(module).read_bytes()

    def _nodes(self, module: str, *, inside_functions: bool = False) -> tuple[ast.AST, ...]:
        return _nodes_of(self._content(module), inside_functions=inside_functions)

    def strings(self, module: str) -> frozenset[str]:
        """Return the string constants of a module."""
        return _strings_of(self._content(module))

    def take(self, module: str) -> None:
        """Mark a module as reached, with everything that it imports."""
        self.run(module)
        if module in self.reached or not self._project.has(module):
            return
        self.reached.add(module)
        self.follow(module)

    def follow(self, module: str) -> None:
        """Mark as reached what a module imports, at any place."""
        for node in _importing_of(self._content(module), inside_functions=True):
            for found in self._imports(node, module):
                self._take_import(found)
                if _is_importer(found):
                    self._take_unknown(module)
            if isinstance(node, ast.Call):
                self._take_computed(node, module)

    def _take_import(self, found: _Import) -> None:
        module, name, _ = found
        if name is None or name == "*":
            self._take_object(module)
            return
        inner = f"{module}.{name}"
        if self._project.has(inner) or self._project.is_package(inner):
            self._take_object(inner)
        elif (module, name) not in self._names:
            self._names.add((module, name))
            self._take_name(module, name)

    def _take_object(self, module: str) -> None:
        """Mark a module that is bound to a name; for a package, all modules in it."""
        if self._project.is_package(module):
            for name in self._project.below(module):
                self.take(name)
        self.take(module)

    def _take_name(self, module: str, name: str) -> None:
        """Mark the module of a name; for a package, the module that its ``__init__`` imports."""
        if not self._project.is_package(module):
            self.take(module)
            return
        self.run(module)
        if not self._project.has(module):  # a namespace package, or measuring code
            return
        nodes = self._nodes(module)
        sources = [
            found for node in nodes for found in self._imports(node, module) if found.bound == name
        ]
        for found in sources:
            self._take_import(found)
        if any(isinstance(node, ast.stmt) and name in defined_by(node) for node in nodes):
            self.take(module)
        elif not sources:  # defined by __getattr__ or a star import
            self._take_object(module)

    def _take_computed(self, call: ast.Call, module: str) -> None:
        """Mark the module of a computed import; see ``_take_unknown`` if its name is no constant."""
        name = getattr(call.args[0], "value", None) if call.args else None
        if isinstance(name, str) and name[:1] != ".":
            self._take_object(name)
        else:
            self._take_unknown(module)

    def _take_unknown(self, module: str) -> None:
        """Mark all that a module may import by a computed name: its package.

        A benchmark outside of the project may import any of the project's modules.
        """
        top = module.partition(".")[0]
        tops = self._project.tops
        for name in {top} if top in tops else {top, *tops}:
            self._take_object(name)

    def run(self, module: str) -> None:
        """Note what importing a module runs, and mark as reached what has side effects."""
        for name in accumulate(module.split("."), "{}.{}".format):
            if name in self.ran or not self._project.has(name):
                continue
            self.ran.add(name)
            for node in _importing_of(self._content(name), inside_functions=False):
                for found in self._imports(node, name):
                    self.run(
                        found.module if found.name is None else f"{found.module}.{found.name}"
                    )
                    top = found.module.partition(".")[0]
                    ours = self._project.is_package(top) or self._project.has(top)
                    if (
                        top not in sys.stdlib_module_names
                        and not ours
                        and not is_harness(found.module)
                    ):
                        self.others.add(found.module)
            if self.has_side_effects(name):
                self.take(name)

    def has_side_effects(self, module: str) -> bool:
        """Return whether importing a module may do more than define names in it.

        It may set something elsewhere, or call a function that may do so or keep its arguments.
        """
        if self._project.file(module).suffix != ".py":
            return True
        nodes = self._nodes(module)
        origins = {found.bound: found for n in nodes for found in self._imports(n, module)}
        local = {name for n in nodes if isinstance(n, ast.stmt) for name in defined_by(n)}
        records = {name for n in nodes if _is_record(n) for name in defined_by(n)}

        def is_harmless(called: ast.expr) -> bool:
            root = _root(called)
            if not isinstance(root, ast.Name):
                return isinstance(root, ast.Constant | ast.JoinedStr)
            if root.id in origins:
                return self._is_harmless_import(origins[root.id])
            if root.id in local:
                return root.id in records or self._is_plain(module)
            return root.id in _PURE_BUILTINS

        for node in nodes:
            if isinstance(node, ast.Attribute | ast.Subscript):
                if not isinstance(node.ctx, ast.Load):
                    return True
                continue
            roots = ((operand, _root(operand)) for operand in _operands(node))
            imported = [a for a, r in roots if isinstance(r, ast.Name) and r.id in origins]
            if not all(map(is_harmless, (*_called_by(node), *imported))):
                return True
        return False

    def _is_harmless_import(self, found: _Import) -> bool:
        """Return whether calling the imported object has no side effects, whatever its arguments."""
        if is_harness(found.module) or found.module.partition(".")[0] in _PURE:
            return True
        inner = f"{found.module}.{found.name}"
        return self._is_plain(inner if self._project.has(inner) else found.module)

    def _is_plain(self, module: str) -> bool:
        """Return whether no function of a module can change other objects or keep its arguments."""
        if module not in self._plain:
            self._plain[module] = False  # ends the recursion if two modules import each other
            self._plain[module] = self._project.has(module) and all(
                self._is_plain_node(node, module)
                for node in self._nodes(module, inside_functions=True)
            )
        return self._plain[module]

    def _is_plain_node(self, node: ast.AST, module: str) -> bool:
        if isinstance(node, ast.Global | ast.Nonlocal):
            return False
        if isinstance(node, ast.Attribute | ast.Subscript):
            return isinstance(node.ctx, ast.Load)
        if isinstance(node, ast.Call):
            return _last_name(node.func) not in _SETTERS
        return all(self._is_harmless_import(found) for found in self._imports(node, module))

    def _imports(self, node: ast.AST, module: str) -> Iterator[_Import]:
        """Yield the imports of a node of this module; none unless it is an import statement."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield _Import(alias.name, None, alias.asname or alias.name)
                if not alias.asname:  # ``import a.b`` binds ``a``, which gives access to all in it
                    top = alias.name.partition(".")[0]
                    yield _Import(top, None, top)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module if self._project.is_package(module) else module.rpartition(".")[0]
                parts = package.split(".")
                parts = parts[: len(parts) - node.level + 1]
                base = ".".join([*parts, *([base] if base else [])])
            for alias in node.names:
                yield _Import(base, alias.name, alias.asname or alias.name)


def _running(tree: ast.AST, *, inside_functions: bool = False) -> Iterator[ast.AST]:
    """Yield the nodes that run when the module is imported; on request also those in functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt) and is_for_type_checkers(node):
            for other in getattr(node, "orelse", ()):
                yield from _running(ast.Module([other], []), inside_functions=inside_functions)
            continue
        yield node
        if inside_functions or not isinstance(node, _FUNCTIONS):
            yield from _running(node, inside_functions=inside_functions)
            continue
        decorators = getattr(node, "decorator_list", ())
        for part in (*decorators, *node.args.defaults, *node.args.kw_defaults):
            if part is not None:
                yield from _running(ast.Expr(part))


def _called_by(node: ast.AST) -> list[ast.expr]:
    """Return what a node calls: as a call, as decorators, or as the bases of a class."""
    if isinstance(node, ast.Call):
        return [node.func]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.decorator_list
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *(k.value for k in node.keywords)]
    return []


def _operands(node: ast.AST) -> list[ast.expr]:
    """Return the operands of a node whose class may define the operator."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value]
    return [node.context_expr] if isinstance(node, ast.withitem) else []


def _root(called: ast.expr) -> ast.expr:
    """Return the root of a chain: ``a`` of ``a.b(1)[0].c``."""
    while isinstance(called, ast.Attribute | ast.Call | ast.Subscript):
        called = called.func if isinstance(called, ast.Call) else called.value
    return called


def _is_record(node: ast.AST) -> bool:
    """Return whether the node is a class whose instances run none of its code when created."""
    makers = {"__init__", "__new__", "__post_init__", "__init_subclass__", "__call__"}
    return isinstance(node, ast.ClassDef) and not any(
        name in makers for statement in node.body for name in defined_by(statement)
    )


def _is_importer(found: _Import) -> bool:
    """Return whether it imports an importer whose calls are not recognised, such as ``pkgutil``."""
    if found.name in _IMPORTERS:
        return found.bound != found.name
    inner = f"{found.module}.{found.name}"
    if inner == "importlib.util.find_spec":  # asks whether a module is there, and runs none of it
        return False
    return not {found.module, inner}.isdisjoint(
        ("pkgutil", "runpy", "importlib.util", "importlib.machinery")
    )


def _last_name(called: ast.expr) -> str:
    if isinstance(called, ast.Attribute):
        return called.attr
    return called.id if isinstance(called, ast.Name) else ""


def main() -> None:
    """Print the hashes of cases as JSON: name to both, or to ``null`` where they cannot be told.

    Where two commits are measured side by side, neither is installed: a process for each sees its
    own.
    """
    asked = json.loads(sys.argv[1])
    workloads, project = asked["workloads"], asked["project"]
    found: dict[str, object] = {}
    for case in named_cases(load_workloads(workloads), asked["cases"], asked["device"]):
        try:
            found[case.name] = reached_sources(case, workloads, project, ran=False)
        except Exception:  # noqa: BLE001  (the process of the case will report what is wrong)
            found[case.name] = None
    print(json.dumps(found))


if __name__ == "__main__":
    main()
