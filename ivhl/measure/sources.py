"""What of a project a case reaches: one hash of its code and data, and one of the benchmark's own.

Two commits with the same hashes are the same subject for this case. Where the benchmarks are a part
of the project that is installed, they are in its hash, and have none of their own. What cannot be
told apart from what is reached is taken for reached, so the hash changes too often rather than too
rarely.

A module is *reached* when a function of the case is in it, or when a reached module imports it,
anywhere in it. It counts with its whole syntax tree and the data files of the packages around it.
Importing a module also *runs* the ``__init__`` of these packages and what they import; that counts
only where it does more than define names (``_Reach.does_more``). So a list of all workloads, and a
package that offers every operation, do not tie all cases together.

Other distributions are told by lock and wheels, and the measuring code by its version.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import os
import re
import sys
import sysconfig
from dataclasses import MISSING, fields, is_dataclass
from fnmatch import fnmatch
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ivhl.measure.syntax import defined_by, is_for_type_checkers, syntax_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ivhl.workload import Case

# Those of runner.MEASURING_CODE, as a test says; the package itself only joins its two halves.
INSTRUMENT: Final = frozenset(
    {
        "ivhl",
        *("ivhl.errors", "ivhl.instrument", "ivhl.machine", "ivhl.measure", "ivhl.records"),
        "ivhl.workload",
    }
)
# No modules of any project, wherever they are.
_NOBODYS: Final = frozenset({"__main__", "__mp_main__", "sitecustomize", "usercustomize"})
# Standard library that does nothing but return something.
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
)
# What changes a thing that it is called on or given.
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
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


class Sources(NamedTuple):
    """Hashes of 64 hex digits.

    Attributes:
        project: Of what the case reaches of the project; where ``benchmark`` is ``None``, of the
            declaration as well.
        benchmark: Of what it reaches of a folder of benchmarks, and of the declaration.
    """

    project: str
    benchmark: str | None


def reached_sources(case: Case, workloads: str, project_name: str, *, ran: bool = True) -> Sources:
    """Return the hashes of what a case reaches.

    Args:
        case: Its module of workloads is imported; its functions need not be.
        workloads: See ``ivhl.workload.load_workloads``.
        project_name: Name of the project, as it is installed.
        ran: Whether the case, and nothing but the case, has run in this process; what it has
            imported by names that only running makes is then in the hash. Elsewhere the hash is the
            same for all cases that import nothing of that kind.
    """
    home, attribute, _ = workloads.partition(":")
    project = _Project(home, project_name)
    reach = _Reach(project)
    for reference in _functions(case):
        reach.take(reference.partition(":")[0])
    reach.run(project.home)
    for name in () if attribute else project.directly_in(home):
        reach.run(name)
    size = case.workload.sizes[case.size]
    # A size may have methods. Its module is no part of the case as far as it only declares
    # workloads: what this case has of them is hashed by value.
    declaring = {name for name in _modules_of(size) if project.has(name)} - reach.reached
    for name in declaring:
        reach.follow(name)
    # Imported by a name that only running the code makes.
    places = {project.place_of(name) for name in (*reach.ran, project.home)}
    places |= {Path(text) for text in os.environ.get("PYTHONPATH", "").split(os.pathsep) if text}
    for name in sorted(sys.modules) if ran else ():
        # Not what torch writes into a temporary folder of its own and imports from there.
        if name not in reach.ran and project.has(name) and project.place_of(name) in places:
            reach.take(name)
    parts = [f"{name} {_digest(project.file(name))}" for name in reach.reached]
    parts += [
        f"{name} {_digest(project.file(name), _declarations(name))}"
        for name in declaring - reach.reached
    ]
    parts += [f"imports {name}" for name in reach.others]
    counted = reach.reached | declaring
    parts += _data(project, counted, set().union(*map(reach.texts, counted)))
    if attribute:
        return Sources(_hash([*parts, _declared(case)]), None)
    theirs = [part for part in parts if re.match(rf"{home}[./ ]", part)]
    others = [part for part in parts if part not in theirs]
    return Sources(_hash(others), _hash([*theirs, _declared(case)]))


def _hash(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()


def _functions(case: Case) -> Iterator[str]:
    workload, variant = case.workload, case.variant
    yield from (workload.make_inputs, workload.eager, workload.reference, variant.call)
    yield from (name for name in (variant.prepare, variant.finish) if name is not None)


def _declared(case: Case) -> str:
    """Return what the declaration says about this case; a new field with a default is not in it."""
    workload, variant = case.workload, case.variant
    beside = {"title", "sizes", "default_size", "variants", "cost", "source", "devices"}
    parts = [
        (type(one).__name__, field.name, getattr(one, field.name))
        for one in (workload, variant)
        for field in fields(one)
        if field.name not in beside
        and (field.default is MISSING or getattr(one, field.name) != field.default)
    ]
    return _ADDRESS.sub("", ascii([*parts, workload.sizes[case.size]]))


def _modules_of(value: object) -> set[str]:
    """Return the modules that define the types of a value and of what is in it."""
    inner: Iterable[object] = ()
    if is_dataclass(value):
        inner = [getattr(value, field.name) for field in fields(value)]
    elif isinstance(value, dict):
        inner = [*value, *value.values()]
    elif isinstance(value, tuple | list | set | frozenset):
        inner = value
    return {type(value).__module__}.union(*map(_modules_of, inner))


def _declarations(module: str) -> list[str]:
    """Return the names that stand for a workload, or for several, in an imported module."""

    def is_workload(value: object) -> bool:
        if isinstance(value, tuple | list):
            return bool(value) and all(map(is_workload, value))
        return type(value).__name__ == "Workload"

    return [name for name, value in vars(sys.modules[module]).items() if is_workload(value)]


def _digest(path: Path, without: Iterable[str] = ()) -> str:
    return _digest_of(path.read_bytes(), tuple(without))


# By content: cases of a run share most of their modules.
@cache
def _digest_of(content: bytes, without: tuple[str, ...]) -> str:
    try:
        return syntax_digest(content, annotations=True, without=[*without])
    except (SyntaxError, ValueError, RecursionError):  # no Python that this one reads
        return hashlib.sha256(content).hexdigest()


@cache
def _tree_of(content: bytes) -> ast.Module:
    try:
        return ast.parse(content)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _data(project: _Project, modules: Iterable[str], texts: Iterable[str]) -> Iterator[str]:
    """Yield name and hash of each file that is no Python and that some modules may read.

    Those are the files of the packages around them, and of the project's other packages what a
    text in the modules names: the package, the file, its ending, or a pattern.
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
    """Say whether a text in a program stands for a file: name, beginning, ending or pattern."""
    if "*" in text or "?" in text:
        return fnmatch(file, text) and text.strip("*?.") != ""
    stem = file.partition(".")[0]
    return text in {file, stem} or (text[0] == "." and file.endswith(text))


def _files_in(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name.endswith("~") or path.name == "__pycache__":
            continue
        # A package below has its own data.
        if path.is_dir() and not (path / "__init__.py").is_file():
            yield from _files_in(path)
        elif path.is_file() and path.suffix not in {".py", ".pyc"}:
            yield path


class _Project:
    """Finds the modules of a project; at most imports nothing, so that no torch is needed.

    Args:
        home: The module of all workloads, or the package of benchmarks.
        name: Of the project, as it is installed.
    """

    def __init__(self, home: str, name: str) -> None:
        self.home = home
        self._home_top = home.partition(".")[0]
        self._name = _normalized(name)
        self.has = cache(self._has)
        self.folders = cache(self._folders)
        self.owns = cache(self._is_owner)

    def file(self, module: str) -> Path:
        """Return the file of a module that the project has."""
        path = self._find(module)
        assert path is not None  # noqa: S101  (has() was asked)
        return path

    def place_of(self, module: str) -> Path:
        """Return the folder in which the module's top-level package or module is."""
        top = module.partition(".")[0]
        folders = self.folders(top)
        return (folders[-1] if folders else self.file(top)).parent

    def is_package(self, module: str) -> bool:
        """Say whether it is a folder of modules, of the project."""
        return self.owns(module.partition(".")[0]) and bool(self.folders(module))

    def packages_of(self, module: str) -> list[str]:
        """Return the packages around a module, the outermost first; a package is in itself."""
        names = accumulate(module.split("."), "{}.{}".format)
        return [name for name in names if self.is_package(name)]

    def below(self, package: str) -> Iterator[str]:
        """Yield every module in a package."""
        for folder in self.folders(package):
            for path in sorted(folder.iterdir()):
                name = f"{package}.{path.name.partition('.')[0]}"
                if path.stem != "__init__" and self.has(name):
                    yield name
                if path.is_dir() and path.name.isidentifier() and path.name != "__pycache__":
                    yield from self.below(name)

    def directly_in(self, package: str) -> list[str]:
        """Return the modules that are in a package, and in none below it."""
        return [name for name in self.below(package) if name.rpartition(".")[0] == package]

    def packages_below(self, package: str) -> Iterator[str]:
        """Yield every package in a package."""
        for folder in self.folders(package):
            for path in sorted(folder.iterdir()):
                name = f"{package}.{path.name}"
                if (path / "__init__.py").is_file() and not is_instrument(name):
                    yield name
                    yield from self.packages_below(name)

    def _has(self, module: str) -> bool:
        if is_instrument(module) or module in _NOBODYS:
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
        """Return where the modules of a package are; nothing if it is none."""
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
        """Say whether a top-level name is the project's: of its distribution, or of none."""
        if top == self._home_top:
            return True
        if top in sys.stdlib_module_names or top in _NOBODYS:
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
    """Say whether a top-level name is the project's, or would be if it were there."""
    project = _Project(workloads.partition(":")[0], project_name)
    return _normalized(top) == _normalized(project_name) or project.owns(top)


def is_instrument(module: str) -> bool:
    """Say whether a module is measuring code, which has a version of its own."""
    return ".".join(module.split(".")[:2]) in INSTRUMENT


@cache
def _distributions(top: str) -> frozenset[str]:
    return frozenset(map(_normalized, packages_distributions().get(top, ())))


def _normalized(name: str) -> str:
    """Return the name of a distribution as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _spec(top: str) -> Any:  # noqa: ANN401  (a ModuleSpec, or None)
    try:
        return find_spec(top)
    except (ImportError, ValueError):
        return None


def _file_of_top(top: str) -> Path | None:
    """Return the file of a top-level module; ``None`` where it has none."""
    origin = getattr(sys.modules.get(top), "__file__", None)
    if origin is None and top not in sys.modules:
        spec = _spec(top)
        origin = spec.origin if spec is not None and spec.has_location else None
    return None if origin is None else Path(origin)


class _Import(NamedTuple):
    """One name that an import statement binds.

    Attributes:
        module: Absolute.
        name: What is taken from it; ``None`` for the module itself, ``*`` for whatever it has.
        bound: Name that it has from then on.
    """

    module: str
    name: str | None
    bound: str


class _Reach:
    """Follows imports from module to module.

    Attributes:
        reached: Modules that count.
        ran: Modules that are run by importing those, and were looked at for what they do.
        others: What the modules that ran import from elsewhere: that, too, is run.
    """

    def __init__(self, project: _Project) -> None:
        self._project = project
        self._tree = cache(self._parse)
        self._names: set[tuple[str, str]] = set()
        self._plain: dict[str, bool] = {}
        self.reached: set[str] = set()
        self.ran: set[str] = set()
        self.others: set[str] = set()

    def _parse(self, module: str) -> ast.Module:
        return _tree_of(self._project.file(module).read_bytes())

    def texts(self, module: str) -> set[str]:
        """Return the texts in a module, which may name files."""
        return {
            node.value
            for node in ast.walk(self._tree(module))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }

    def take(self, module: str) -> None:
        """Take a module for reached, with everything that it imports."""
        self.run(module)
        if module in self.reached or not self._project.has(module):
            return
        self.reached.add(module)
        self.follow(module)

    def follow(self, module: str) -> None:
        """Take for reached what a module imports, anywhere in it."""
        tree = self._tree(module)
        for node in _running(tree, inside_functions=True):
            for found in self._imports(node, module):
                self._take_import(found)
                if _is_importer(found):
                    self._take_object(module.partition(".")[0])
            if isinstance(node, ast.Call) and _last_name(node.func) in _IMPORTERS:
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
        """Take a module that has a name: of a package, whatever can be got through it."""
        if self._project.is_package(module):
            for name in self._project.below(module):
                self.take(name)
        self.take(module)

    def _take_name(self, module: str, name: str) -> None:
        """Take the module that a name is in: for a package, where its ``__init__`` has it from."""
        if not self._project.is_package(module):
            self.take(module)
            return
        self.run(module)
        if not self._project.has(module):  # a folder, or ours
            return
        tree = self._tree(module)
        sources = [
            found
            for node in _running(tree)
            for found in self._imports(node, module)
            if found.bound == name
        ]
        for found in sources:
            self._take_import(found)
        if any(isinstance(node, ast.stmt) and name in defined_by(node) for node in _running(tree)):
            self.take(module)
        elif not sources:  # by __getattr__, or by a star
            self._take_object(module)

    def _take_computed(self, call: ast.Call, module: str) -> None:
        """Take what is imported by a text; without one that can be read, everything."""
        text = call.args[0] if call.args else None
        if (
            isinstance(text, ast.Constant)
            and isinstance(text.value, str)
            and text.value[:1] != "."
        ):
            self._take_object(text.value)
        else:
            self._take_object(module.partition(".")[0])

    def run(self, module: str) -> None:
        """Look at what importing a module runs, and take what does more than define names."""
        for name in accumulate(module.split("."), "{}.{}".format):
            if name in self.ran or not self._project.has(name):
                continue
            self.ran.add(name)
            for node in _running(self._tree(name)):
                for found in self._imports(node, name):
                    self.run(
                        found.module if found.name is None else f"{found.module}.{found.name}"
                    )
                    self._note_other(found.module)
            if self.does_more(name):
                self.take(name)

    def _note_other(self, module: str) -> None:
        top = module.partition(".")[0]
        ours = self._project.is_package(top) or self._project.has(top)
        if top not in sys.stdlib_module_names and not ours and not is_instrument(module):
            self.others.add(module)

    def does_more(self, module: str) -> bool:
        """Say whether importing a module may do more than define names in it.

        That is: set something elsewhere, or call what may do so or keep what it is given.
        """
        if self._project.file(module).suffix != ".py":
            return True
        nodes = list(_running(self._tree(module)))
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
            return root.id in _PURE_BUILTINS or _is_exception(root.id)

        def is_imported(operand: ast.expr) -> bool:
            root = _root(operand)
            return isinstance(root, ast.Name) and root.id in origins

        return any(
            _is_set(node)
            or not all(map(is_harmless, _called_by(node)))
            or not all(map(is_harmless, filter(is_imported, _operands(node))))
            for node in nodes
        )

    def _is_harmless_import(self, found: _Import) -> bool:
        """Say whether what is imported may be called with anything, and nothing comes of it."""
        if is_instrument(found.module) or found.module.partition(".")[0] in _PURE:
            return True
        inner = f"{found.module}.{found.name}"
        return self._is_plain(inner if self._project.has(inner) else found.module)

    def _is_plain(self, module: str) -> bool:
        """Say whether no function of a module can set anything outside, or keep what it is given."""
        if module not in self._plain:
            self._plain[module] = False  # two that import each other are not worth the trouble
            self._plain[module] = self._project.has(module) and all(
                self._is_plain_node(node, module)
                for node in _running(self._tree(module), inside_functions=True)
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
        """Yield what a node imports, if it is an import statement of this module."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield _Import(alias.name, None, alias.asname or alias.name)
                if not alias.asname:  # ``import a.b`` binds ``a``, and with it whatever is in it
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
    """Yield the nodes that importing a module runs, or with those inside of its functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt) and is_for_type_checkers(node):
            for other in getattr(node, "orelse", ()):
                yield from _running(ast.Module([other], []), inside_functions=inside_functions)
            continue
        yield node
        if inside_functions or not isinstance(node, _FUNCTIONS):
            yield from _running(node, inside_functions=inside_functions)
        elif not isinstance(node, ast.Lambda):
            for decorator in node.decorator_list:
                yield from _running(ast.Expr(decorator))
        if not inside_functions and isinstance(node, _FUNCTIONS):
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    yield from _running(ast.Expr(default))


def _is_set(node: ast.AST) -> bool:
    """Say whether it is a part of something that a statement sets or deletes."""
    return isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load)


def _called_by(node: ast.AST) -> list[ast.expr]:
    """Return what a node calls: by itself, as decorators, or as the bases of a class."""
    if isinstance(node, ast.Call):
        return [node.func]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.decorator_list
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *(k.value for k in node.keywords)]
    return []


def _operands(node: ast.AST) -> list[ast.expr]:
    """Return what a node uses in a way that its class may turn into a call."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value]
    return [node.context_expr] if isinstance(node, ast.withitem) else []


def _root(called: ast.expr) -> ast.expr:
    """Return where a chain begins: ``a`` of ``a.b(1)[0].c``."""
    while isinstance(called, ast.Attribute | ast.Call | ast.Subscript):
        called = called.func if isinstance(called, ast.Call) else called.value
    return called


def _is_record(node: ast.AST) -> bool:
    """Say whether it is a class that does nothing of its own when one of it is made."""
    makers = {"__init__", "__new__", "__post_init__", "__init_subclass__", "__call__"}
    return isinstance(node, ast.ClassDef) and not any(
        name in makers for statement in node.body for name in defined_by(statement)
    )


def _is_exception(name: str) -> bool:
    found = getattr(builtins, name, None)
    return isinstance(found, type) and issubclass(found, BaseException)


def _is_importer(found: _Import) -> bool:
    """Say whether it imports what can import by a name, in a way whose calls are not recognised."""
    if found.name in _IMPORTERS:
        return found.bound != found.name
    inner = f"{found.module}.{found.name}"
    return bool(
        {found.module, inner} & {"pkgutil", "runpy", "importlib.util", "importlib.machinery"}
    )


def _last_name(called: ast.expr) -> str:
    if isinstance(called, ast.Attribute):
        return called.attr
    return called.id if isinstance(called, ast.Name) else ""
