"""Make pages from code: commands from the app, the API from docstrings, JSON from its schemas."""

from __future__ import annotations

import inspect
import json
import os
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import griffe
import typer
from sphinx.ext.napoleon import Config, GoogleDocstring

from ivhl.cli import COMMANDS, app, help_of
from studies.docs.stage import REPOSITORY, PageError, anchor_of, pages_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

# Modules that promise something, each with what it is for.
MODULES: Final = (
    "workload", "compile", "device", "ops", "mlff", "rollout", "surgical", "hotpath",
)  # fmt: skip
# Items of the navigation, by its groups.
MADE: Final = {
    "Reference": (
        "- [Functions and classes](api/index.md): modules of Python, from their docstrings.",
        "- [JSON for programs](schemas.md): schemas of answers and files.",
    )
}
# The page that shows each command at work, with the example on the command's own page.
_GUIDES: Final = {
    "docs/track.md": ("init", "check", "try", "publish"),
    "docs/runners.md": ("doctor",),
    "docs/advise.md": ("advise",),
    "docs/run.md": ("run", "ready", "report"),
    "observatory/README.md": ("observe",),
    "docs/fleet.md": ("import", "fleet", "gate"),
    "docs/workloads.md": ("bench", "compat"),
    "docs/commands.md": ("results",),
    "docs/regressions.md": ("compare", "regressions"),
    "docs/causes.md": ("course", "bisect", "attribute", "blame", "repeat"),
    "docs/version-checks.md": ("version-checks",),
    "docs/matrix.md": ("matrix", "lock"),
    "docs/docker.md": ("image",),
}
_MOST_LINES: Final = 3  # of an example


def write_reference(root: Path, target: Path, commit: str) -> None:
    """Write the pages that are made from code.

    Args:
        root: Folder of the repository.
        target: Folder of the source of the site.
        commit: Tag or commit to which links to files lead.
    """
    texts = {**_commands(root), **_api(root, commit), "schemas.md": _schemas(root, commit)}
    for name, text in texts.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        with (target / name).open("a", encoding="utf-8") as page:  # docs/commands.md is there
            page.write(text)


def _with_links(text: str, link: str) -> str:
    """Return a text of the code with links to the pages that it names as files of docs/."""
    return re.sub(r"(?<![\w/])docs/([\w-]+)\.md", link, text)


def _tree(names: Sequence[str]) -> str:
    return "\n".join(("```{toctree}", ":hidden:", "", *names, "```", ""))


def _commands(root: Path) -> dict[str, str]:
    """Return a page for each command, and the list of them as ``ivhl --help`` has it."""
    for module, _ in COMMANDS.values():
        import_module(f"ivhl.cli.{module}")
    group: Any = typer.main.get_group(app)
    context = group.context_class(group, info_name="ivhl")
    pages, panels = {}, dict[str, list[str]]()
    for name, (module, panel) in COMMANDS.items():
        panels.setdefault(panel, []).append(f"- [`ivhl {name}`]({name}.md): {help_of(module)}")
        example = _example(root, name)
        text = "\n".join(_command(group.commands[name], name, context, example))
        pages[f"commands/{name}.md"] = text
    lines = [""]
    for panel, rows in panels.items():
        lines += [f"## {panel}", "", *rows, ""]
    pages["commands/index.md"] = "\n".join((*lines, _tree([*COMMANDS])))
    return pages


def _example(root: Path, name: str) -> list[str]:
    """Return the lines that show a command at work: code of its guide, and a link to the guide.

    Raises:
        PageError: If the guide does not have the command.
    """
    path = next((one for one, names in _GUIDES.items() if name in names), None)
    if path is None:
        raise PageError(f"studies/docs/reference.py: _GUIDES must have a page for `ivhl {name}`")
    text = (root / path).read_text(encoding="utf-8")
    # In a block a meaning may stand beside a command.
    line = rf"(?m)^(?:    |\$ )(ivhl {name}\b[^#\n]*?)(?:  +(?:# )?(\S.*))?$"
    lines = [
        f"{command}  # {meaning}" if meaning else command
        for command, meaning in re.findall(line, text)
    ] or re.findall(rf"`(ivhl {name}\b[^`\n]*)`", text)
    if not lines:
        raise PageError(f"{path}: `ivhl {name}` must have an example, or another guide")
    page = os.path.relpath(f"{pages_of(root)[path]}.md", "commands")
    code = ("```shell", *list(dict.fromkeys(lines))[:_MOST_LINES], "```")
    return ["**Example**", "", *code, "", f"Guide: [](<{page}>).", ""]


def _command(
    command: Any,  # noqa: ANN401  (of typer, without a public name)
    name: str,
    parent: Any,  # noqa: ANN401
    example: Sequence[str] = (),
    level: int = 1,
) -> Iterator[str]:
    """Yield the lines of a command: its help, usage, example, arguments, options and commands."""
    context = parent.__class__(command, info_name=name, parent=parent)
    path = context.command_path
    yield from (f"{'#' * level} `{path}`", "")
    yield from (_with_links(inspect.cleandoc(command.help), r"[](../\1.md)"), "")
    yield from ("```text", context.command.get_usage(context), "```", "", *example)
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is None:
            continue
        signature, text = record
        yield from (f"````{{option}} {signature}", text.replace("<", r"\<"), "````", "")
    for below in getattr(command, "commands", {}).values():
        yield from _command(below, below.name, context, level=level + 1)


def _api(root: Path, commit: str) -> dict[str, str]:
    """Return a page for each module, read without importing it: it needs torch."""
    loader = griffe.GriffeLoader(search_paths=[root], allow_inspection=False)
    package: Any = loader.load("ivhl")
    loader.resolve_aliases()
    pages, rows = {}, []
    for name in MODULES:
        module = package[name]
        rows.append(f"- [`ivhl.{name}`]({name}.rst): {_first_sentence(module.docstring.value)}")
        pages[f"api/{name}.rst"] = "\n".join(_module(root, module, commit))
    lines = [
        "# Functions and classes",
        "",
        "By module, from the docstrings of the code.",
        "",
        *rows,
        "",
    ]
    lines.append(_tree(MODULES))
    pages["api/index.md"] = "\n".join(lines)
    return pages


def _first_sentence(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())


def _module(root: Path, module: Any, commit: str) -> Iterator[str]:  # noqa: ANN401  (of griffe)
    yield from (module.path, "=" * len(module.path), "")
    yield from (f".. py:module:: {module.path}", "", *_docstring(module), "")
    for name, found in sorted(module.members.items()):
        if not found.is_public:
            continue
        member = found.final_target if found.is_alias else found
        if member.is_module or not _is_documented(module, member):
            continue
        yield from _member(member, name, "")
        path = member.filepath.relative_to(root).as_posix()
        lines = f"#L{member.lineno}-L{member.endlineno}"
        yield from (f"`Source <{REPOSITORY}/blob/{commit}/{path}{lines}>`__", "")


def _is_documented(module: Any, member: Any) -> bool:  # noqa: ANN401  (of griffe)
    """Return whether a name is listed in ``__all__``; without that list, whether it is explained."""
    return module.exports is not None or (
        member.docstring is not None and member.canonical_path.startswith(module.path)
    )


def _member(member: Any, name: str, indent: str) -> Iterator[str]:  # noqa: ANN401  (of griffe)
    """Yield the lines of a function, class or attribute, with the public members of a class."""
    kind = "method" if indent else "function"
    if member.is_class:
        kind = "class"
        signature = f"{name}({_arguments(member.parameters)})"
    elif member.is_function:
        signature = f"{name}({_arguments(member.parameters)})"
        signature += f" -> {member.returns}" if member.returns else ""
    else:
        kind, signature = ("attribute" if indent else "data"), name
    yield from (f"{indent}.. py:{kind}:: {signature}", "")
    inner = indent + "   "
    if member.is_attribute and member.annotation and not member.is_function:
        yield from (f"{inner}Type: ``{member.annotation}``", "")
    yield from (f"{inner}{line}".rstrip() for line in _docstring(member))
    yield ""
    if member.is_class:
        for below, found in member.members.items():
            explained = not found.is_alias and found.docstring is not None
            if explained and not below.startswith("_"):
                yield from _member(found, below, inner)


def _arguments(parameters: Any) -> str:  # noqa: ANN401  (of griffe)
    """Return the parameters as a signature shows them, without ``self``."""
    texts, keyword = [], False
    for parameter in parameters:
        if parameter.name in {"self", "cls"}:
            continue
        star = {"variadic positional": "*", "variadic keyword": "**"}.get(parameter.kind.value, "")
        if parameter.kind.value == "keyword-only" and not keyword:
            texts.append("*")
            keyword = True
        keyword = keyword or star == "*"
        text = f"{star}{parameter.name}"
        if parameter.annotation is not None:
            text += f": {parameter.annotation}"
        if parameter.default is not None and not star:
            text += f" = {parameter.default}"
        texts.append(text)
    return ", ".join(texts)


def _docstring(member: Any) -> list[str]:  # noqa: ANN401  (of griffe)
    if member.docstring is None:
        return []
    config = Config(napoleon_use_rtype=False, napoleon_use_ivar=True)
    # A line of these may hold several, and each gets the indentation of its place.
    text = "\n".join(GoogleDocstring(member.docstring.value, config).lines())
    return _with_links(text, r":doc:`/\1`").splitlines()


def _schemas(root: Path, commit: str) -> str:
    """Return the page of the schemas: a section for each, with fields, types and meaning."""
    lines = ["# JSON for programs", ""]
    lines += [
        *("## Answers", ""),
        "Answers of `--json` by their JSON Schemas; *name*`/1` is the value of `schema`.",
        "",
    ]
    folder = root / "docs" / "schemas"
    lines += _sections(sorted(folder.glob("*.json")), root, commit)
    lines += ["(files)=", "## Files", "", "What ivhl reads and writes, by their JSON Schemas.", ""]
    lines += _sections(sorted(folder.glob("files/*.json")), root, commit)
    return "\n".join(lines)


def _sections(paths: Sequence[Path], root: Path, commit: str) -> Iterator[str]:
    for path in paths:
        schema = json.loads(path.read_text(encoding="utf-8"))
        file = f"{REPOSITORY}/blob/{commit}/{path.relative_to(root).as_posix()}"
        yield from (f"({anchor_of(path.relative_to(root))})=", f"### {path.stem}", "")
        yield from (f"[JSON Schema]({file})", "", *_fields(schema))
        for name, below in schema.get("$defs", {}).items():
            if "properties" in below:
                yield from (f"**{name}**", "", *_fields(below))


def _fields(schema: dict[str, Any]) -> list[str]:
    required = set(schema.get("required", ()))
    rows = ["| field | type |", "|---|---|"]
    for name, field in schema.get("properties", {}).items():
        optional = "" if name in required else ", may be missing"
        rows.append(f"| `{name}` | {_type(field)}{optional} |")
    return [*rows, ""]


def _type(schema: dict[str, Any]) -> str:
    """Return a type in words, for a cell of a table."""
    if "$ref" in schema:
        return f"*{schema['$ref'].rpartition('/')[2]}*"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(f"`{json.dumps(value)}`" for value in values)
    if schema.get("type") == "array":
        items = schema.get("prefixItems", [schema.get("items", {})])
        return "list of " + ", ".join(dict.fromkeys(map(_type, items)))
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object, each value {_type(schema['additionalProperties'])}"
    return str(schema.get("type", "any"))
