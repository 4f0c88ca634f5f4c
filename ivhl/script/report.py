"""The text of an issue on a script: Markdown that can be posted upstream (``ivhl report``).

What is printed anywhere in it is visible, and without folders, tokens and the name of this machine.
"""

from __future__ import annotations

import ast
import os
import re
from dataclasses import dataclass, replace
from difflib import unified_diff
from typing import TYPE_CHECKING, Final

from packaging.version import Version

from ivhl.machine.compiler import compiler_version
from ivhl.machine.identity import this_machine
from ivhl.measure.failures import COMPILER_ERROR, SUPPORT_GATE
from ivhl.records.text import printable, visible
from ivhl.script.outcome import ending, without_logs
from ivhl.tracker.causes.blame import STAGES
from ivhl.tracker.wording import counted, lines_of, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ivhl.matrix.locks import LockState
    from ivhl.matrix.spec import CellSpec
    from ivhl.script.outcome import ScriptOutcome
    from ivhl.script.symptom import Onset, ScriptBlame, Symptom, SymptomWord
    from ivhl.tracker.support.known import KnownCause

_OTHER_VALUES: Final = "other values than eager code"
_TITLE: Final = 150  # characters
_OPERATIONS: Final = 4  # in a title
_CELL: Final = 100
_LINES: Final = 40  # of an output
_BESIDE: Final = 3
# Packages whose versions a report names.
_NAMED: Final = ("torch", "triton", "pytorch-triton", "numpy", "sympy")
# As issues of PyTorch are titled.
_PARTS: Final = {
    "eager": "dynamo",
    "aot_eager": "aotautograd",
    "aot_eager_decomp_partition": "aotautograd",
    "inductor": "inductor",
}
_WORDS: Final[dict[SymptomWord, str]] = {
    "shows": "**shows it**",
    "right": "right",
    "other": "ends in another way",
    "eager": "fails without the compiler, too",
}

# The frames of a traceback.
_TRACEBACK: Final = re.compile(
    r"(?P<title>^Traceback \(most recent call last\):\n)(?P<frames>(?:[ \t].*\n)+)", re.MULTILINE
)
# The exception in which PyTorch wraps that of a backend.
_WRAPPER: Final = re.compile(r"^(?:\w+\.)*BackendCompilerFailed: backend='\w+' raised:\s*")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# A folder of this machine; of an installed package, what is below its environment stays.
_SYSTEM: Final = r"(?!(?:usr|opt|lib|lib64|etc|dev|proc|sys|s?bin)/)"
_FOLDERS: Final = re.compile(rf"(?<![\w./:])/{_SYSTEM}(?:[^\s/:'\"<>|]+/)+(?=[^\s/:'\"<>|]+)")
_ADDRESS: Final = re.compile(r"\b0x[0-9a-f]{6,}\b")
_PACKAGES: Final = re.compile(r"(?<![\w./:])/(?:[^\s:'\"<>|]+/)?(?=(?:site|dist)-packages/)")
# Where services say how their tokens begin, and what stands before a secret.
_TOKENS: Final = re.compile(
    r"\b(?:hf_|gh[opsur]_|github_pat_|glpat-|sk-|pypi-|xox[abpr]-|AKIA|eyJ)[\w.-]{12,}"
    r"|(?<=://)[^\s/@'\"]+(?=@)"
    r"|(?i:(?<=bearer )[\w.~+/-]{8,})"
)
_SECRET: Final = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY", re.IGNORECASE)
_SHORTEST: Final = 8  # characters of a secret: a shorter text is also found by chance


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptReport:
    """What is known of a script that shows a symptom.

    Attributes:
        text: The script.
        onset: In which releases it shows it.
        blame: Which stage of the compiler is the first to show it.
        lock: Of the cell that shows it.
        known: Known causes, by the message.
        perhaps: Known causes of scripts like this one.
        alike: What else has the same cause, a sentence each.
        command: What made the report.
    """

    text: str
    onset: Onset
    blame: ScriptBlame
    lock: LockState
    known: Sequence[KnownCause] = ()
    perhaps: Sequence[KnownCause] = ()
    alike: Sequence[str] = ()
    command: str

    @property
    def title(self) -> str:
        """Its title, as issues of PyTorch have them."""
        symptom = self.onset.symptom
        part = _PARTS.get(self.blame.stage, "torch.compile")
        about = _subject(self.text)
        if symptom.count:
            reasons = lines_of(" ".join(symptom.reasons))
            text = ": ".join([_counted(symptom, symptom.seen), *reasons[:1]])
        elif symptom.is_wrong:
            text = ": ".join([_OTHER_VALUES, *about])
        elif not symptom.seen.exception:
            text = ": ".join([_ending(symptom.seen), *about])
        elif _is_raised_by(self.text, symptom.seen):
            text = f"a check of the script fails: {symptom.seen.first_line}"
        else:
            text = _ending(symptom.seen)
        return shortened(f"[{part}] {printable(scrubbed(text)).rstrip(': ')}", _TITLE)


def _subject(text: str) -> list[str]:
    """Return what a script is about: the first line of its docstring, or what it compiles calls."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    if docstring := ast.get_docstring(tree):
        return docstring.splitlines()[:1]
    bodies = [*_compiled(tree)]
    calls = [node for body in bodies for node in ast.walk(body) if isinstance(node, ast.Call)]
    calls.sort(key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0))
    names = dict.fromkeys(
        node.func.attr
        for node in calls
        if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) != "self"
    )
    if names:
        return [", ".join([*names][:_OPERATIONS])]
    results = [
        node.value for body in bodies for node in ast.walk(body) if isinstance(node, ast.Return)
    ]
    results += [body.body for body in bodies if isinstance(body, ast.Lambda)]
    return [ast.unparse(one) for one in results[-1:] if one is not None]


def _compiled(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what a script gives to `compile`: lambdas, and the bodies of functions and classes."""
    nodes = [*ast.walk(tree)]
    calls = [node for node in nodes if isinstance(node, ast.Call) and _compiles(node.func)]
    given = [part for call in calls for one in call.args[:1] for part in ast.walk(one)]
    yield from (part for part in given if isinstance(part, ast.Lambda))
    named = {part.id for part in given if isinstance(part, ast.Name)}
    made = [n for n in nodes if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call)]
    for one in made:  # of a model, its class
        if named & {target.id for target in one.targets if isinstance(target, ast.Name)}:
            named.add(ast.unparse(one.value).partition("(")[0])
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and (
            node.name in named or any(map(_compiles, node.decorator_list))
        ):
            yield from (part for part in node.body if getattr(part, "name", "") != "__init__")


def _compiles(function: ast.expr) -> bool:
    return ast.unparse(function).partition("(")[0].rpartition(".")[2] == "compile"


def _is_raised_by(text: str, outcome: ScriptOutcome) -> bool:
    """Return whether a statement of the script itself raised what ended it."""
    if not outcome.frames:
        return False
    file, line, _ = outcome.frames[-1]
    lines = text.splitlines()
    in_script = "site-packages" not in file and 0 < line <= len(lines)
    return in_script and lines[line - 1].lstrip().startswith("raise ")


def as_markdown(report: ScriptReport) -> str:
    """Return the report as Markdown."""
    return "\n".join(_lines(report))


def scrubbed(text: str) -> str:
    """Return a text without folders of this machine, its name, and tokens."""
    text = _PACKAGES.sub("", _COLOUR.sub("", text))
    host = os.uname().nodename
    if len(host) >= _SHORTEST:
        text = text.replace(host, "HOST")
    return without_secrets(_FOLDERS.sub("", _ADDRESS.sub("0x...", text)))


def without_secrets(text: str) -> str:
    """Return a script without tokens, and with ``~`` for the home of its user."""
    secrets = (
        value
        for name, value in os.environ.items()
        if _SECRET.search(name) and len(value) >= _SHORTEST
    )
    for value in sorted(secrets, key=len, reverse=True):
        text = text.replace(value, "TOKEN")
    home = os.path.expanduser("~")  # noqa: PTH111  (also where there is none)
    if home.count("/") > 1 or home == "/root":
        text = re.sub(rf"{re.escape(home)}(?=[/'\"\s]|$)", "~", text)
    return visible(_TOKENS.sub("TOKEN", text))


def _lines(report: ScriptReport) -> Iterator[str]:
    onset, symptom = report.onset, report.onset.symptom
    cell = onset.cell
    yield f"# {_inline(report.title)}\n"
    if onset.fixed is not None and onset.outcomes[max(onset.outcomes, key=_release)][1] == "right":
        yield f"> No new issue: PyTorch {onset.fixed.torch} and later are right.\n"
    yield f"{_summary(report)}\n"
    yield "## Script\n"
    yield f"{_fenced(without_secrets(report.text), 'python')}\n"
    if symptom.expected is None and not symptom.count:
        yield "## Expected: without the compiler\n"
        yield f"{_output(symptom.without)}\n"
    if symptom.count:
        yield f"## Reasons of {symptom.count.replace('_', ' ')}\n"
        reasons = [f"{_fenced(scrubbed(one))}\n" for one in symptom.reasons]
        yield from reasons or [f"PyTorch {cell.torch} keeps none.\n"]
    else:
        yield f"## Seen: PyTorch {cell.torch}\n"
        yield f"{_output(symptom.seen, None if symptom.expected else symptom.without)}\n"
    yield "## Releases\n"
    yield from _releases(report)
    yield "\n## Stage\n"
    yield from _stage(report.blame)
    yield "\n## Known to be alike\n"
    known = [f"- {_known(one)}" for one in report.known]
    if not report.known:  # else the message tells more than what the script uses
        known += [f"- perhaps {_known(one)}" for one in report.perhaps]
    known += [f"- {_inline(text)}" for text in report.alike]
    yield from known or [
        "ivhl knows no report and no library with this cause. Please search the issues of PyTorch."
    ]
    yield "\n## Versions\n"
    machine, packages = this_machine("machine"), report.lock.packages
    named = ", ".join(f"{name} {packages[name]}" for name in _NAMED if name in packages)
    yield f"Python {cell.python}, {named}; {machine.system}, {machine.cpu}, {compiler_version()}"
    yield f"\nMade by `{_code(scrubbed(report.command))}`."
    yield ""


def _summary(report: ScriptReport) -> str:
    """Return what is seen, since when, and where, in a few sentences."""
    onset = report.onset
    symptom, cell = onset.symptom, onset.cell
    seen = _in_short(symptom, symptom.seen)
    text = f"PyTorch {cell.torch} on Python {cell.python}: the script below {seen}"
    if symptom.count:
        text += "."
    elif symptom.expected is None and not (_fails(symptom.seen) or _fails(symptom.without)):
        text += " than without the compiler."
    elif symptom.expected is not None:
        wanted = [symptom.expected.ending, *symptom.expected.lines]
        text += f", where {' and '.join(f'`{_code(one)}`' for one in wanted if one)} is expected."
    elif _fails(symptom.without):
        text += f"; without the compiler it {_in_short(symptom, symptom.without)}."
    else:
        text += "; without the compiler it ends well."
    return f"{text} {since(onset)}"


def since(onset: Onset) -> str:
    """Return a sentence on the first release that shows a symptom, and the first without it."""
    text = f"The first release that shows it is {onset.first.torch}"
    if onset.before is not None:
        outcome, word = onset.outcomes[onset.before]
        before = onset.before.torch
        shown = f"{_word(onset, onset.before)} (`{_code(_shown(onset, outcome))}`)"
        if word == "right":
            text += f"; {before} is right"
        elif SUPPORT_GATE.search(outcome.message):
            text += f", the oldest that compiles on Python {onset.cell.python}"
        elif onset.right:
            text += f"; {before} {shown}{_before_that(onset, outcome)}"
            text += f"; {onset.right.torch} is right"
        else:
            text += f"; {before} {shown}"
    else:
        text += ", the oldest that can be tried"
    newest = max(onset.outcomes, key=_release)
    last = "the newest shows it, too" if newest == onset.cell else "no later one can be tried"
    last = f"{onset.fixed.torch} is right again" if onset.fixed else last
    return f"{text}; {last}."


def _before_that(onset: Onset, outcome: ScriptOutcome) -> str:
    """Return how the releases end between the newest that is right and the one before the first.

    Args:
        onset: First release that shows the failure of the script.
        outcome: How the script ends in the release before the first.
    """
    unlike = [
        cell for cell in onset.between if onset.outcomes[cell][0].exception != outcome.exception
    ]
    if not unlike:
        several = len(onset.between) > 1
        return f", as releases since {onset.between[0].torch} do" if several else ""
    last = unlike[-1]
    return f"; {last.torch} in yet another (`{_code(_shown(onset, onset.outcomes[last][0]))}`)"


def _release(cell: CellSpec) -> Version:
    return Version(cell.torch)


def _known(cause: KnownCause) -> str:
    """Return a known cause with its report, as Markdown."""
    if not cause.url:
        return f"{_inline(cause.title)} (not reported that we know of)"
    return f"[{cause.short}]({cause.url}): {_inline(cause.report or cause.title)}"


def _releases(report: ScriptReport) -> Iterator[str]:
    onset = report.onset
    yield "| PyTorch | | ends with |"
    yield "|---|---|---|"
    for cell in sorted(onset.outcomes, key=_release):
        outcome, word = onset.outcomes[cell]
        if word == "absent":
            continue
        text = _code(shortened(_shown(onset, outcome), _CELL))
        yield f"| {cell.torch} | {_word(onset, cell)} | `{text}` |"
    yield "\nEach release has an environment of its own, locked by hashes. The search left out the"
    yield "releases that are not here."


def _word(onset: Onset, cell: CellSpec) -> str:
    """Return what a cell shows, as text; of a count that is neither 0 nor near it, ``fewer``."""
    outcome, word = onset.outcomes[cell]
    counts = onset.symptom.count and outcome.ending == onset.symptom.seen.ending
    return "has fewer" if counts and word == "other" else _WORDS[word]


def _shown(onset: Onset, outcome: ScriptOutcome) -> str:
    """Return the count that is sought; of other scripts how they end, or what they print last."""
    if not onset.symptom.count:
        return _last_line(outcome)
    is_counted = outcome.ending == onset.symptom.seen.ending
    return _counted(onset.symptom, outcome) if is_counted else _ending(outcome)


def _stage(blame: ScriptBlame) -> Iterator[str]:
    if not blame.stage:
        yield f"No stage can be named: {_inline(blame.why)}."
        return
    meaning = {str(name): text for name, text in STAGES.items()}[blame.stage]
    yield f"`{blame.stage}`: {meaning}."
    for backend, outcome in blame.others:
        yield f"\nWith `{backend}` it ends in another way: `{_code(_ending(outcome)).rstrip('.')}`."
    if blame.cures:
        cures = ", or ".join(f"`{_code(one)}`" for one in blame.cures)
        yield f"\nCured by {cures}."
    else:
        yield "\nNo setting that ivhl knows cures it."


def _fails(outcome: ScriptOutcome) -> bool:
    return outcome.ending != "exit 0"


def _in_short(symptom: Symptom, outcome: ScriptOutcome) -> str:
    """Return what a script does, as the rest of a sentence."""
    if symptom.count:
        return f"has {_counted(symptom, outcome)}"
    if outcome.exception:
        return f"raises `{_code(_ending(outcome))}`"
    if _fails(outcome):
        return f"ends with `{_code(_ending(outcome))}`"
    return "prints other values than expected" if symptom.expected else "prints other values"


def _counted(symptom: Symptom, outcome: ScriptOutcome) -> str:
    number = getattr(outcome, symptom.count)
    if number is None:
        return "no count"
    return counted(number, symptom.count.removesuffix("s").replace("_", " "))


def _ending(outcome: ScriptOutcome) -> str:
    """Return how a script ended, on one line; first what its exception was raised from."""
    text = _WRAPPER.sub("", ending(outcome))
    if error := COMPILER_ERROR.search(outcome.message):
        text = f"{text}: {error['text'].splitlines()[0]}"
    if outcome.inner[0]:
        kind, message = outcome.inner
        text = f"{ending(replace(outcome, exception=kind, message=message))}, as {text}"
    return printable(scrubbed(text))


def _last_line(outcome: ScriptOutcome) -> str:
    """Return the ending of a script that fails, and the last line that another one prints."""
    lines = () if _fails(outcome) else lines_of(outcome.output)
    return printable(scrubbed(lines[-1])) if lines else _ending(outcome)


def _output(outcome: ScriptOutcome, other: ScriptOutcome | None = None) -> str:
    """Return what a script printed and raised; of long texts what differs from another outcome."""
    printed = scrubbed(outcome.output).rstrip().splitlines()
    if other is not None and len(printed) > _LINES:
        before = scrubbed(other.output).rstrip().splitlines()
        changed = unified_diff(before, printed, "expected", "seen", n=_BESIDE, lineterm="")
        return _fenced("\n".join(_first(list(changed))), "diff")
    lines = _first(printed)
    if outcome.exception:
        message = scrubbed(f"{outcome.exception}: {outcome.message}").rstrip().splitlines()
        lines += [*_frames(outcome), *_telling(message)]
        if outcome.inner[0]:
            inner = scrubbed(": ".join(outcome.inner)).rstrip().splitlines()
            lines += ["", "raised from", *_telling(inner)]
    elif _fails(outcome):
        lines += [*_without_noise(scrubbed(outcome.errors)).rstrip().splitlines()[-_LINES:]]
        lines += [f"({outcome.ending})"]
    return _fenced("\n".join(lines) or "(prints nothing)")


def _without_noise(errors: str) -> str:
    """Return standard error without logs and warnings, and of tracebacks the end."""

    def end_of(found: re.Match[str]) -> str:
        frames = found["frames"].splitlines(keepends=True)
        return "".join([found["title"], *frames[-2 * _BESIDE :]])

    return _TRACEBACK.sub(end_of, without_logs(errors))


def _frames(outcome: ScriptOutcome) -> Iterator[str]:
    """Yield the innermost lines of a traceback."""
    for file, line, name in outcome.frames[-_BESIDE:]:
        yield f'  File "{scrubbed(file)}", line {line}, in {name}'


def _telling(message: Sequence[str]) -> list[str]:
    """Return the beginning of a message; of one with warnings of a compiler, its errors."""
    errors = [line for line in message if COMPILER_ERROR.match(line)]
    if len(message) <= _LINES or not errors:
        return _first(message)
    return [*message[:_BESIDE], "[...]", *_first(errors)]


def _first(lines: Sequence[str]) -> list[str]:
    if len(lines) <= _LINES:
        return list(lines)
    return [*lines[:_LINES], f"[{counted(len(lines) - _LINES, 'more line')}]"]


def _fenced(text: str, language: str = "") -> str:
    """Return a text as a block of code, behind more backticks than it has in a row."""
    longest = max((len(one) for one in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{visible(text).rstrip()}\n{fence}"


def _code(text: str) -> str:
    """Return a text for a span of code, also in a table."""
    return printable(text).replace("`", "'").replace("|", "\\|")


def _inline(text: str) -> str:
    """Return a text on one line, such that nothing in it is markup."""
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", printable(text))
