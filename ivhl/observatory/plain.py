"""A case of the observatory as a plain script: no part of ivhl runs in it."""

from __future__ import annotations

import ast
import builtins
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging.version import Version

from ivhl.errors import ResultsError, SpecError, UnknownNameError
from ivhl.measure.target_spec import TargetError, parse_input, source_of
from ivhl.observatory.signatures import CAUSE_KINDS, fault_of
from ivhl.observatory.views import VERDICTS, key_of
from ivhl.records.text import printable
from ivhl.tracker.support.compat import newest_release

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ivhl.observatory.record import Observed
    from ivhl.observatory.views import Libraries

_SCRIPT: Final = '''\
# /// script
# dependencies = {needs}
# ///
"""{library} {version}: {case}, {ask}."""

import torch
{imports}
torch.set_num_threads(1)


def run(is_compiled):
    """Return the outputs, and of a step all gradients."""
    torch.manual_seed(0)
    function = {expression}
    function = function() if isinstance(function, type) else function
    is_model = isinstance(function, torch.nn.Module)
    if is_model:
        function.train({step})
    call = torch.compile(function) if is_compiled else function
    for batch in [{batches}]:
        torch.manual_seed(1)
        arguments, named = batch()
        {gradients}torch.manual_seed(2)
        with torch.set_grad_enabled({grad}):
            outputs = call(*arguments, **named)
    found = tensors(outputs)
{backward}    return found


def tensors(value):
    """Return the tensors in an output, by path."""
    leaves, _ = torch.utils._pytree.tree_flatten(value)
    leaves = [one if torch.is_tensor(one) else getattr(one, "__dict__", None) for one in leaves]
    found = []
    for one in leaves:
        found += [one] if torch.is_tensor(one) else tensors(one) if one else []
    return found


expected, found = run(False), run(True)
assert len(expected) == len(found), f"{{len(found)}} tensors, {{len(expected)}} of eager code"
for right, seen in zip(expected, found):
    size = float(right.abs().max()) if right.numel() else 0.0
    torch.testing.assert_close(seen, right, rtol=1e-3, atol=1e-4 * size, equal_nan=True)
print("compiled code is like eager code")
'''
_DOUBLE: Final = ", dtype=torch.float64"
_GRADIENTS: Final = """for one in tensors([arguments, named]):
            if one.is_floating_point():
                one.requires_grad_()
        """
_BACKWARD: Final = """\
    torch.manual_seed(3)
    sum((one * torch.randn_like(one)).sum() for one in found if one.requires_grad).backward()
    leaves = [*(function.parameters() if is_model else ()), *tensors([arguments, named])]
    found = [one.detach() for one in found]
    found += [one.grad for one in leaves if one.grad is not None]
"""


def plain_script(record: Observed, needs: Sequence[str], functions: str) -> str:
    """Return a script that compares compiled with eager code, and raises if they differ.

    Args:
        record: The verdict on the case.
        needs: Requirements of the library's row. Each release gets the newest version that it
            allows, as in the observatory.
        functions: Text of the file that the row names; empty if it names none.

    Raises:
        SpecError: If an input of the record cannot be made again.
    """
    module, _, expression = record.target.partition(":")
    imports = functions and f"\n{_without_docstring(functions)}\n"
    if not functions:
        check_module(record.library, module)
        imports = f"from {module} import {', '.join(free_names(expression))}\n"
    batches = [record.inputs or ""]
    if record.failure is None and record.status != "works" and record.second:
        batches.append(record.second.inputs)
    is_step = record.ask == "step"
    return _SCRIPT.format(
        library=plain(record.library),
        version=plain(record.version or ""),
        case=plain(record.case),
        ask=record.ask,
        needs=json.dumps([*needs]),
        imports=imports,
        expression=expression,
        step=is_step,
        grad="True" if is_step else "not is_model",
        # The harness draws in float64 and rounds for float32.
        batches=", ".join(batch(record, one).replace(_DOUBLE, "") for one in batches),
        gradients=_GRADIENTS if is_step else "",
        backward=_BACKWARD if is_step else "",
    )


def script_of_case(libraries: Libraries, name: str) -> tuple[str, Observed]:
    """Return the plain script of a case, and its newest record that is bad.

    Args:
        libraries: The observatory.
        name: ``LIBRARY/CASE`` or ``LIBRARY/CASE/ASK``; without its ask, forward.

    Raises:
        UnknownNameError: If the library has no such case.
        ResultsError: If the case fails in no cell or ran in none, or PyTorch is not at fault.
        SpecError: If its file is gone, or an input cannot be made again.
    """
    library, _, case = name.partition("/")
    row = next(one for one in libraries.rows if one.name == library)
    asked = {f"{one.case}/{one.ask}": one for one in row.questions}
    question = asked.get(case) or asked.get(f"{case}/forward") or asked.get(f"{case}/step")
    if question is None:
        raise UnknownNameError(f"case of {library}", case, list(asked))
    every = [
        one
        for one in libraries.newest
        if (one.library, one.case, one.ask) == (library, question.case, question.ask)
    ]
    found = [one for one in every if one.status in CAUSE_KINDS]
    named = f"{library} {question.case} {question.ask}"
    if not found:
        says = "works in all tried cells"
        if all(one.status == "unavailable" for one in every):
            words = " or ".join(dict.fromkeys(VERDICTS[key_of(one)][0] for one in every))
            says = f"never ran: {words} in all {len(every)} cells" if every else "has no record"
        raise ResultsError(f"no failure to report: {named} {says}", hint="see the library's page")
    found = [one for one in found if one.failure is None or fault_of(one.failure) == "PyTorch"]
    if not found:
        raise ResultsError(
            f"no failure of PyTorch to report: {named} fails because of its own code",
            hint="the page of the library has the message",
        )
    torch = newest_release(one.torch for one in found)
    record = max(
        (one for one in found if one.torch == torch),
        key=lambda one: Version(one.python.removesuffix("t")),
    )
    functions = ""
    if question.folder is not None:
        path = question.folder / Path(record.target.partition(":")[0]).name
        functions = path.read_text(encoding="utf-8")
    return plain_script(record, row.requirements, functions), record


def _without_docstring(text: str) -> str:
    """Return the code of a module without what must stand first in its file."""
    tree = ast.parse(text)
    lines = text.splitlines()
    first = 0
    for node in tree.body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        is_torch = isinstance(node, ast.Import) and [one.name for one in node.names] == ["torch"]
        if not (is_docstring or is_future or is_torch):
            break
        first = node.end_lineno or 0
    return "\n".join(lines[first:]).strip() + "\n"


def check_module(library: str, module: str) -> None:
    """Raise an error if a text cannot be imported.

    Raises:
        SpecError: If it is no dotted name.
    """
    if not all(part.isidentifier() for part in module.split(".")):
        raise SpecError(f"{library}: {module!r} is no module", hint="correct the row of the case")


def plain(text: str) -> str:
    """Return the first line of a text, such that it cannot end the docstring that it stands in."""
    return printable(text.partition("\n")[0]).replace("\\", "/").replace('"', "'")


def free_names(expression: str) -> list[str]:
    """Return the names that an expression takes from its module."""
    nodes = list(ast.walk(ast.parse(expression, mode="eval")))
    bound = {node.arg for node in nodes if isinstance(node, ast.arg)}
    names = [node for node in nodes if isinstance(node, ast.Name)]
    bound |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return sorted({node.id for node in names} - bound - {"torch"} - set(dir(builtins)))


def batch(record: Observed, inputs: str) -> str:
    """Return the source of a function that draws the inputs, by position and by name.

    Raises:
        SpecError: If there are none, or an input is neither a tensor nor a literal.
    """
    arguments: list[str] = []
    named: list[str] = []
    for text in inputs.split("; ") if inputs else ():
        name, is_named, value = text.partition("=")
        if not is_named or not name.isidentifier():
            name, value = "", text
        try:
            source = source_of(parse_input(value))
        except TargetError:
            try:
                source = repr(ast.literal_eval(value))
            except (SyntaxError, ValueError) as error:
                raise SpecError(
                    f"{record.library} {record.case} in {record.cell}: inputs {inputs!r}: "
                    f"{value!r} cannot be made again",
                    hint="use another cell, or correct the script of another cell",
                ) from error
        if name:
            named.append(f"{json.dumps(name)}: {source}")
        else:
            arguments.append(source)
    return f"lambda: ([{', '.join(arguments)}], {{{', '.join(named)}}})"
