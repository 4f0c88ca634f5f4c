"""What is observed is grouped by its cause, across libraries and releases, and by nothing else.

``signatures.json`` holds messages as PyTorch 2.5.1, 2.6.0 and 2.15.0 printed them in cells of
Python 3.12 (``*-torchdiffeq-*``: of torchdiffeq 0.2.5), of functions of two modules that
differ in names, lines and shapes; the folders of the machine are replaced. Entries with the name of
another library are messages of ``observatory/records``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ivhl.observatory.record import Failed, Observed
from ivhl.observatory.signatures import fault_of, signatures_of
from ivhl.tracker.support.messages import cause_of, dynamo_id

SHOWN: dict[str, dict[str, Any]] = {
    one["name"]: one
    for one in json.loads(Path(__file__).with_name("signatures.json").read_text(encoding="utf-8"))
}
MESSAGES = [one.get("graph_break") or one["failure"]["message"] for one in SHOWN.values()]

# By kind: in two libraries, or in two releases, of which the older one prints other words.
TOGETHER = [
    ("item-liba-2.15.0", "item-libb-2.15.0"),
    ("item-liba-2.5.1", "item-libb-2.15.0"),
    ("branch-liba-2.5.1", "branch-libb-2.15.0"),
    ("printing-liba-2.6.0", "printing-libb-2.15.0"),
    ("nonzero-liba-2.5.1", "nonzero-libb-2.15.0"),
    ("uuid-liba-2.5.1", "uuid-libb-2.15.0"),
    ("disabled-liba-2.5.1", "disabled-libb-2.15.0"),
    ("inserted-liba-2.6.0", "inserted-libb-2.15.0"),
    ("backward1-liba-2.5.1", "backward-libb-2.15.0"),
    ("custom-liba-2.6.0", "custom-libb-2.15.0"),
    ("isinf-liba-2.5.1", "isinf-liba-2.15.0"),
    ("tolist-liba-2.5.1", "tolist-liba-2.15.0"),
    # The same lowering with other shapes, and a C++ error in other kernels.
    ("complex-liba-2.15.0", "complex-libb-2.15.0"),
    ("complex-liba-2.5.1", "complex-libb-2.15.0"),
    ("unique_lowering-torchdiffeq-2.5.1", "unique_lowering-torchdiffeq-2.15.0"),
    ("cpp-liba-2.15.0", "cpp-libb-2.15.0"),
    ("cpp-liba-2.5.1", "cpp-libb-2.15.0"),
    ("mismatch-compile-liba-2.5.1", "mismatch-compile-libb-2.15.0"),
    ("reshape-liba-2.6.0", "reshape-libb-2.15.0"),
    ("names2-liba-2.5.1", "names2-liba-2.15.0"),
    ("extension-libtorch_python.so-liba-2.5.1", "extension-libtorch_python.so-liba-2.6.0"),
    ("numpy-liba-2.5.1", "numpy-libb-2.6.0"),
    # The failure class, a file that PyTorch split, or the name of a class differs.
    ("byte-pytorch-crf-2.13.0", "byte-pytorch-crf-2.15.0"),
    ("constant-gpytorch-2.5.1", "constant-gpytorch-2.6.0"),
    ("bert-transformers-2.5.1", "t5-transformers-2.2.2"),
    # In a package that both libraries require.
    ("capturing-transformers-2.6.0", "capturing-peft-2.6.0"),
    ("pipeline-peft-2.5.1", "pipeline-sentence-transformers-2.4.1"),
    ("exporting-transformers-2.6.0", "exporting-sentence-transformers-2.6.0"),
    # An extension for another PyTorch.
    ("unloaded-torchaudio-2.12.1", "unloaded-torchaudio-2.10.0"),
    ("unloaded-torchaudio-2.12.1", "unloaded-speechbrain-2.9.1"),
    ("symbol-torchaudio-2.6.0", "symbol-speechbrain-2.8.0"),
    ("symbol-speechbrain-2.8.0", "unloaded-speechbrain-2.9.1"),
    # The same line of the same version, in the words of the next release.
    ("dynamic-torchsde-2.6.0", "dynamic-torchsde-2.7.1"),
    ("sorted-gpytorch-2.5.1", "sorted-gpytorch-2.6.0"),
    ("handler-x-transformers-2.7.1", "handler-x-transformers-2.8.0"),
    ("super-torchsde-2.7.1", "super-torchsde-2.8.0"),
    ("bytecode-linear-operator-2.6.0", "bytecode-linear-operator-2.7.1"),
    ("bound-captum-2.6.0", "bound-captum-2.7.1"),
    ("moved-julius-2.6.0", "moved-julius-2.7.1"),
    ("unready-monai-2.6.0", "unready-monai-2.7.1"),
    ("unready-torchsde-2.6.0", "unready-monai-2.7.1"),
    ("device-julius-2.7.1", "device-julius-2.8.0"),
    ("grouped-pytorch-optimizer-2.7.1", "grouped-pytorch-optimizer-2.8.0"),
    ("gcd-julius-2.15.0", "lcm-snac-2.15.0"),
    ("typed-pyro-ppl-2.8.0", "typed-pyro-ppl-2.9.1"),
    ("limit-zuko-2.6.0", "limit-zuko-2.7.1"),
    ("limit-zuko-2.7.1", "limit-schedulefree-2.15.0"),
    ("backend-monai-2.6.0", "backend-monai-2.7.1"),
    ("integer-monai-2.4.1", "integer-monai-2.5.1"),
    ("call-pyro-ppl-2.6.0", "call-pyro-ppl-2.7.1"),
    ("method-monai-2.7.1", "method-monai-2.8.0"),
    # A function that Dynamo skips.
    ("group-lion-pytorch-2.6.0", "group-lion-pytorch-2.7.1"),
    ("seed-torchsde-2.6.0", "seed-torchsde-2.7.1"),
    ("leggauss-captum-2.6.0", "leggauss-captum-2.7.1"),
    ("grad-captum-2.6.0", "grad-captum-2.10.0"),
    ("grad-captum-2.10.0", "grad-captum-2.11.0"),
    ("new-pyro-ppl-2.6.0", "new-pyro-ppl-2.7.1"),
    ("manual-torchsde-2.6.0", "manual-torchsde-2.7.1"),
    # The reason below the instruction that Dynamo traces.
    ("group-lion-pytorch-2.7.1", "group1-schedulefree-2.15.0"),
    ("group1-schedulefree-2.15.0", "group2-schedulefree-2.15.0"),
    ("get-captum-2.11.0", "get1-captum-2.11.0"),
    ("descriptor-captum-2.11.0", "descriptor1-captum-2.11.0"),
    ("new-pyro-ppl-2.7.1", "new1-pyro-ppl-2.12.1"),
    ("raised-torchsde-2.7.1", "raised-torchsde-2.11.0"),
]
APART = [
    # The same exception class, another lowering; the same message at another stage.
    ("unique_lowering-torchdiffeq-2.15.0", "complex-liba-2.15.0"),
    ("missing-cut-liba-2.15.0", "missing-cut-libb-2.15.0"),
    ("stride-eager-liba-2.15.0", "complex-liba-2.15.0"),
    ("import-to-numpy-liba-2.5.1", "numpy-liba-2.5.1"),
    ("import-numbers-liba-2.5.1", "mismatch-eager-liba-2.5.1"),
    ("mismatch-eager-liba-2.15.0", "mismatch-compile-liba-2.15.0"),
    # Other numbers of Dynamo, or of one number another operation, builtin or function.
    ("sparse-liba-2.15.0", "sparse1-liba-2.15.0"),
    ("item-liba-2.15.0", "tolist-liba-2.15.0"),
    ("nonzero-liba-2.15.0", "unique-liba-2.15.0"),
    ("nonzero-liba-2.5.1", "unique-liba-2.15.0"),
    ("printing-liba-2.15.0", "method-liba-2.15.0"),
    ("uuid-liba-2.15.0", "getpid-liba-2.15.0"),
    ("inserted-liba-2.15.0", "disabled-liba-2.15.0"),
    # What a library raises itself, in words like PyTorch's, or without words.
    ("stride-own-liba-2.15.0", "mismatch-compile-liba-2.15.0"),
    ("bare-compile-liba-2.15.0", "bare-compile-libb-2.15.0"),
    ("own-eager-liba-2.15.0", "own-eager-libb-2.15.0"),
    ("names-liba-2.15.0", "names-libb-2.15.0"),
    ("names2-liba-2.15.0", "names2-libb-2.15.0"),
    # Imports.
    ("import-torch-name-liba-2.15.0", "import-torch-other-liba-2.15.0"),
    ("import-missing-liba-2.5.1", "import-missing-numpy-liba-2.5.1"),
    ("numpy-float-liba-2.15.0", "import-torch-name-liba-2.15.0"),
    ("own-version-liba-2.15.0", "import-torch-name-liba-2.15.0"),
    ("numpy-liba-2.5.1", "extension-libtorch_python.so-liba-2.5.1"),
    ("unloaded-torchaudio-2.10.0", "import-missing-liba-2.15.0"),
    ("bert-transformers-2.5.1", "own-version-liba-2.5.1"),
    # In other functions, files or packages.
    ("constant-gpytorch-2.6.0", "guard-gpytorch-2.7.1"),
    ("capturing-peft-2.6.0", "names-liba-2.6.0"),
    ("pipeline-peft-2.5.1", "capturing-peft-2.6.0"),
    ("lost-lion-pytorch-2.15.0", "lost-pytorch-optimizer-2.15.0"),
    # What Dynamo skips, or cannot trace: each function, type and instruction is its own.
    ("leggauss-captum-2.7.1", "grad-captum-2.10.0"),
    ("leggauss-captum-2.6.0", "grad-captum-2.6.0"),
    ("leggauss-captum-2.7.1", "dependent-pyro-ppl-2.15.0"),
    ("isinstance-torchaudio-2.15.0", "dependent-pyro-ppl-2.15.0"),
    ("isinstance-torchaudio-2.15.0", "grad-captum-2.10.0"),
    ("get-captum-2.11.0", "new-pyro-ppl-2.7.1"),
    ("manual-torchsde-2.7.1", "new-pyro-ppl-2.7.1"),
    ("group-lion-pytorch-2.7.1", "seed-torchsde-2.7.1"),
    ("group-lion-pytorch-2.6.0", "seed-torchsde-2.6.0"),
    ("handler-x-transformers-2.7.1", "handler-keras-2.4.1"),
    ("super-torchsde-2.7.1", "super-keras-2.6.0"),
    ("sorted-gpytorch-2.5.1", "printing-liba-2.5.1"),
    ("device-julius-2.8.0", "gcd-julius-2.15.0"),
    ("device-julius-2.8.0", "grouped-pytorch-optimizer-2.8.0"),
    ("device-julius-2.7.1", "grouped-pytorch-optimizer-2.7.1"),
    ("descriptor-captum-2.11.0", "method-monai-2.8.0"),
    ("call-captum-2.10.0", "call-pyro-ppl-2.7.1"),
    ("get1-captum-2.11.0", "subclass-pypose-2.15.0"),
    ("get1-captum-2.11.0", "group1-schedulefree-2.15.0"),
    ("raised-torchsde-2.11.0", "raised-entmax-2.15.0"),
]
FAULTS = {
    "cpp-liba-2.5.1": "PyTorch",
    "complex-liba-2.15.0": "PyTorch",
    "mismatch-compile-liba-2.15.0": "PyTorch",
    "missing-cut-liba-2.6.0": "PyTorch",
    "own-eager-liba-2.15.0": "library",
    "bare-compile-liba-2.5.1": "library",
    "raising-liba-2.15.0": "library",
    "mismatch-eager-libb-2.5.1": "library",
    "import-torch-name-liba-2.15.0": "library",
    "own-version-liba-2.6.0": "library",
    "import-missing-liba-2.15.0": "environment",
    "import-missing-numpy-liba-2.5.1": "environment",
    "numpy-liba-2.6.0": "environment",
    "numpy-float-liba-2.15.0": "environment",
    "extension-libtorch_python.so-liba-2.5.1": "environment",
    "extension-libtorch_python.so-liba-2.15.0": "environment",
    "unloaded-torchaudio-2.12.1": "environment",
    "dtype-nnaudio-2.2.2": "environment",
    "bert-transformers-2.5.1": "library",
    "pipeline-peft-2.5.1": "library",
}


def observed(name: str, **changes: Any) -> Observed:  # noqa: ANN401  (fields of a record)
    """Return a record of what was shown in a cell."""
    one = SHOWN[name]
    said = {
        "library": one["library"],
        "case": "small",
        "torch": one["torch"],
        "cell": f"py3.12-torch{one['torch']}",
        "status": "works" if "graph_break" in one else "failed",
        "failure": one.get("failure"),
        "graph_breaks": [{"text": one["graph_break"], "count": 1}] if "graph_break" in one else [],
    }
    return made(**said | changes)


def made(**fields: Any) -> Observed:  # noqa: ANN401  (fields of a record)
    """Return a record with these fields."""
    usual = {
        "schema": "ivhl.observed/1", "library": "liba", "case": "small", "ask": "forward",
        "target": "liba:small", "inputs": "8,4", "version": "1.0", "cell": "py3.12-torch2.15.0",
        "python": "3.12", "torch": "2.15.0", "lock": "0" * 64, "row": "0" * 64, "instrument": "1",
        "machine": "here", "at": "2026-11-28T18:00:00+00:00", "cpu_s": 1.0, "wall_s": 1.0,
        "status": "works", "why": "",
    }  # fmt: skip
    return Observed.model_validate(usual | fields)


@pytest.mark.parametrize(("one", "other"), TOGETHER)
def test_the_same_cause_falls_together(one: str, other: str) -> None:
    (signature,) = signatures_of([observed(one), observed(other, case="large")])
    assert len(signature.records) == 2


@pytest.mark.parametrize(("one", "other"), APART)
def test_other_causes_stay_apart(one: str, other: str) -> None:
    found = signatures_of([observed(one), observed(other, case="large")])
    assert len(found) == 2
    assert len({signature.name for signature in found}) == 2


def test_a_message_without_words_of_its_own_is_told_apart_by_file_and_library() -> None:
    bare = SHOWN["bare-compile-liba-2.15.0"]["failure"]
    raised = bare | {"exception": "AssertionError", "frame": "torch/_inductor/ir.py:create"}
    moved = raised | {"frame": "torch/_inductor/lowering.py:create"}
    found = signatures_of(
        [
            observed("bare-compile-liba-2.15.0"),
            observed("bare-compile-liba-2.15.0", library="libb"),
            observed("bare-compile-liba-2.15.0", failure=raised, library="libc"),
            observed("bare-compile-liba-2.15.0", failure=moved, library="libd"),
        ]
    )
    assert [one.libraries for one in found] == [("liba",), ("libb",), ("libc",), ("libd",)]


def test_an_exception_that_dynamo_does_not_name_is_one_cause_in_each_library() -> None:
    found = signatures_of([observed("raised-torchsde-2.11.0"), observed("raised-entmax-2.15.0")])
    titles = {one.cause.text for one in found}
    assert titles == {"Observed exception in torchsde", "Observed exception in entmax"}


def test_the_function_of_an_assertion_with_words_may_move_to_another_file() -> None:
    older, newer = SHOWN["constant-gpytorch-2.5.1"], SHOWN["constant-gpytorch-2.6.0"]
    assert older["failure"]["frame"] == "torch/_dynamo/codegen.py:create_load_const"
    assert newer["failure"]["frame"] != older["failure"]["frame"]
    other = newer["failure"] | {"frame": "torch/_dynamo/guards.py:EQUALS_MATCH"}
    found = signatures_of(
        [observed(older["name"]), observed(newer["name"], failure=other, case="large")]
    )
    assert {one.cause.place for one in found} == {"create_load_const", "EQUALS_MATCH"}


def test_a_record_lacks_advice_for_projects_and_files_that_inductor_wrote() -> None:
    said = SHOWN["unpackaged-bitsandbytes-2.2.2"]["failure"]
    assert "`requires` in envs/matrix.toml" in said["message"]
    assert Failed.model_validate(said).message == "No module named 'packaging'"
    said = SHOWN["undeclared-ultralytics-2.12.1"]["failure"]
    record = observed(
        "undeclared-ultralytics-2.12.1", why=f"failed in phase compile at {said['where']}"
    )
    assert said["where"].startswith("2i/c2i4j")
    assert record.failure is not None
    assert (record.failure.where, record.why) == ("", "failed in phase compile")
    own = Failed.model_validate(said | {"where": "nn/cabs.py:12"})
    assert own.where == "nn/cabs.py:12"


@pytest.mark.parametrize(("name", "fault"), FAULTS.items())
def test_it_is_said_whose_fault_a_failure_is(name: str, fault: str) -> None:
    assert fault_of(Failed.model_validate(SHOWN[name]["failure"])) == fault


def test_a_library_that_takes_from_torch_what_a_release_lacks_is_at_fault() -> None:
    failure = {
        "phase": "compile", "class": "compile",
        "exception": "torch._dynamo.exc.InternalTorchDynamoError",
        "message": "AttributeError: module 'torch.compiler' has no attribute 'is_exporting'",
        "where": "utils/output_capturing.py:326", "frame": "torch/_dynamo/utils.py:object_has",
    }  # fmt: skip
    assert fault_of(Failed.model_validate(failure)) == "library"
    failure["message"] = "AttributeError: 'NoneType' object has no attribute 'is_exporting'"
    assert fault_of(Failed.model_validate(failure)) == "PyTorch"


def test_a_crash_while_a_library_is_imported_is_the_environments() -> None:
    crash = {
        "phase": "import", "class": "crash", "exception": "", "message": "ended by SIGSEGV",
        "where": "", "frame": "",
    }  # fmt: skip
    assert fault_of(Failed.model_validate(crash)) == "environment"
    # Or while eager code runs, which compiles nothing.
    assert fault_of(Failed.model_validate(crash | {"phase": "eager"})) == "environment"
    effect = crash | {"phase": "eager", "class": "side_effect", "message": "random state changed"}
    assert fault_of(Failed.model_validate(effect)) == "not known"
    compiled = crash | {"phase": "compile"}
    assert fault_of(Failed.model_validate(compiled)) == "PyTorch"
    killed = compiled | {"message": "ended by SIGKILL"}
    assert fault_of(Failed.model_validate(killed)) == "environment"


@pytest.mark.parametrize(
    ("exception", "fault"),
    [
        ("AttributeError", "PyTorch"),
        ("builtins.KeyError", "PyTorch"),
        ("ValueError", "library"),
        ("demo.errors.TypeError", "library"),
    ],
)
def test_what_only_compiled_code_does_not_find_is_lost_by_the_compiler(
    exception: str, fault: str
) -> None:
    # lion-pytorch 0.2.5 on 2.15.0; observatory/checked has a script.
    failure = {
        "phase": "compile", "class": "compile", "exception": exception,
        "message": "'Lion' object has no attribute 'decoupled_wd'",
        "where": "lion_pytorch/lion_pytorch.py:74", "frame": "torch/utils/_contextlib.py:no_grad",
    }  # fmt: skip
    assert fault_of(Failed.model_validate(failure)) == fault


@pytest.mark.parametrize(("exception", "fault"), [("", "not known"), ("ValueError", "library")])
def test_eager_code_that_is_not_as_float64_is_nobodys_fault_that_is_known(
    exception: str, fault: str
) -> None:
    failure = {
        "phase": "eager", "class": "eager_failed", "exception": exception,
        "message": "eager's running_mean does not agree with the reference", "where": "",
        "frame": "",
    }  # fmt: skip
    assert fault_of(Failed.model_validate(failure)) == fault


def test_what_everybody_shows_is_one_signature_of_its_releases_and_libraries() -> None:
    names = [name for name in SHOWN if name.startswith("item-")]
    found, other = signatures_of(
        [*map(observed, names), observed("printing-liba-2.6.0", case="large")]
    )
    assert (found.first, found.last, found.libraries) == ("2.5.1", "2.15.0", ("liba", "libb"))
    assert len(found.records) == len(names) == 6
    assert found.cause.number == "GB0124"
    assert found.name == "unsupported-tensor-item-call-with-capture-scalar-outputs"
    assert other.name == "failed-to-trace-builtin-operator-print"
    assert found.known == ()
    assert SHOWN["item-libb-2.15.0"]["graph_break"] == found.message


def test_a_number_that_was_cut_off_is_that_of_the_same_text() -> None:
    text = SHOWN["item-liba-2.15.0"]["graph_break"]
    assert dynamo_id(text) == "GB0124"
    cut = observed("item-liba-2.15.0", graph_breaks=[{"text": text[:90], "count": 1}])
    (signature,) = signatures_of([cut, observed("item-libb-2.15.0")])
    assert signature.cause.number == "GB0124"


def test_an_upstream_report_is_named_where_it_is_known() -> None:
    said = dict(SHOWN["complex-liba-2.15.0"]["failure"])
    said["message"] = (
        "LoweringException: RuntimeError: self.stride(-1) must be 1 to view ComplexFloat as Float"
    )
    (signature,) = signatures_of([observed("complex-liba-2.15.0", failure=said)])
    assert [one.short for one in signature.known] == ["pytorch/pytorch#163243"]
    failure = {"phase": "accuracy", "class": "wrong", "exception": "", "message": "m", "where": ""}
    wrong = [
        made(
            library="zuko",
            case=case,
            cell=f"py3.12-torch{torch}",
            torch=torch,
            status="wrong",
            failure=failure | {"frame": ""},
        )
        for case, torch in (
            ("other", "2.13.0"),
            ("spline_flow", "2.13.0"),
            ("spline_flow", "2.15.0"),
        )
    ]
    shorts = [[found.short for found in one.known] for one in signatures_of(wrong)]
    assert sorted(shorts) == [[], ["pytorch/pytorch#185702"]]


def test_wrong_results_of_two_cases_are_never_one_signature_and_stand_first() -> None:
    def wrong(case: str, torch: str, error: str) -> Observed:
        said = f"the first call's grad.blocks.0.weight {error} against float64"
        failure = {
            "phase": "accuracy", "class": "wrong", "exception": "", "message": said, "where": "",
            "frame": "",
        }  # fmt: skip
        cell = f"py3.12-torch{torch}"
        return made(case=case, torch=torch, cell=cell, status="wrong", failure=failure)

    found = signatures_of(
        [
            observed("item-liba-2.15.0"),
            observed("cpp-liba-2.15.0"),
            wrong("one", "2.5.1", "has an RMSE of 0.1"),
            wrong("one", "2.6.0", "has an element with an error of 2"),
            wrong("two", "2.6.0", "has an RMSE of 0.1"),
        ]
    )
    assert [one.cause.kind for one in found] == ["wrong", "wrong", "failed", "graph break"]
    assert [one.name for one in found[:2]] == ["wrong-liba-one", "wrong-liba-two"]
    assert [len(one.records) for one in found[:2]] == [2, 1]


def test_a_failure_of_a_larger_batch_has_the_cause_of_a_first_call() -> None:
    why = (
        "failed with inputs 3,64: torch._inductor.exc.InductorError: LoweringException: "
        "DynamicOutputShapeException: aten._unique2.default"
    )
    (signature,) = signatures_of([made(status="failed", why=why, second=None)])
    assert signature.cause.text == "DynamicOutputShapeException: aten._unique2.default"
    why = (
        "failed with inputs 3,64: torch._dynamo.exc.TorchRuntimeError: Failed running call_method "
        "fill_diagonal_(*(FakeTensor(..., size=(3, 3)), 0), **{}): unsupported: fill_diagonal_"
    )
    (before,) = signatures_of([made(status="failed", why=why, second=None)])
    assert before.cause.text == "unsupported: fill_diagonal_"
    # pytorch-metric-learning 2.9.0 on 2.4.1, and on 2.9.1, whose words a record cuts.
    call = "call_method fill_diagonal_(*(FakeTensor(..., size=(33, 33)), 0), **{}):"
    off = "Cannot call storage_offset() on tensor with symbolic sizes/strides"
    cut = f"Dynamo failed to run FX node with fake tensors: {call} got RuntimeError('{off}\\nExcep"
    shown = signatures_of(
        made(status="failed", why=f"failed with inputs 33,32: {said}", second=None, case=case)
        for case, said in (("older", f"Failed running {call} {off}"), ("newer", cut))
    )
    assert [one.cause.text for one in shown] == [off]
    off = "wrong with inputs 3,64: off by 0.31"
    (wrong,) = signatures_of([made(status="wrong", why=off)])
    assert (wrong.cause.text, wrong.name) == ("off by #", "wrong-liba-small")


def test_two_causes_with_the_same_words_have_two_names_that_later_records_leave() -> None:
    def shown(library: str, at: str) -> Observed:
        return observed(
            "bare-compile-liba-2.15.0", library=library, at=f"2026-11-{at}T00:00:00+00:00"
        )

    first = signatures_of([shown("a-b", "20")])
    both = signatures_of([shown("a b", "21"), shown("a-b", "20")])
    assert {one.name for one in first} < {one.name for one in both}
    assert len({one.name for one in both}) == 2


@pytest.mark.parametrize("message", MESSAGES)
def test_a_cause_is_its_own_cause(message: str) -> None:
    cause = cause_of(message)
    assert cause_of(cause) == cause


PIECES = st.one_of(
    st.sampled_from(
        [" at libs/a.py:3 f", "backend='inductor' raised:\n", "LoweringException: ", "'own'", "0x7f",
         "L['self'].w", "target: aten.sin.default", "Set TORCH_LOGS=x", "[2, 3]", "/a/b.py", "\n",
         "Tensor.item", "call_method X() f ()", "buf3", "Unsupported: ", ": ", "…", "#", "'"]
    ),
    st.text(max_size=8),
    st.floats().map(str),
)  # fmt: skip


def test_what_ivhl_adds_to_a_message_is_no_part_of_its_cause() -> None:
    handler = (
        "invalid handler args <bound method BuiltinVariable.call_next of BuiltinVariable({})>"
    )
    older, newer = handler.format(""), handler.format("zip")
    place = " (in a loop: the frame runs eagerly) at timm/models.py:12 forward"
    assert cause_of(older) == cause_of(newer) == cause_of(newer + place)
    assert cause_of("generator at a.py:3 f") == cause_of(SHOWN["frame-liba-2.15.0"]["graph_break"])
    said = (
        "torch.* op returned non-Tensor\n  Explanation: a\n  Developer debug context: target: <x>"
    )
    assert cause_of(said) == "torch.* op returned non-Tensor"


@given(st.lists(PIECES, max_size=12).map("".join))
@example("LoweringException: Set TORCH_LOGS=x")
def test_a_cause_of_any_text_is_its_own_cause(text: str) -> None:
    cause = cause_of(text)
    assert cause_of(cause) == cause
    assert "\n" not in cause


NUMBERS = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
NAMES = st.from_regex(r"[a-z][a-z0-9_.+-]{0,9}", fullmatch=True)
PATHS = st.lists(NAMES, min_size=1, max_size=5).map(lambda parts: "/".join(["", *parts]) + "/x")
SHAPES = st.lists(st.integers(0, 10**6), min_size=1, max_size=5).map(str)


@given(*[st.tuples(NUMBERS, NUMBERS, PATHS, SHAPES)] * 2)
def test_numbers_shapes_and_paths_are_no_part_of_a_cause(
    one: tuple[float, float, str, str], other: tuple[float, float, str, str]
) -> None:
    def said(a: float, b: float, path: str, shape: str) -> str:
        tensor, line = abs(int(a)), abs(int(b))
        return f"size {shape} of buf{tensor} in {path}: got {a}, line {line} of {path}:{line}"

    assert cause_of(said(*one)) == cause_of(said(*other))
