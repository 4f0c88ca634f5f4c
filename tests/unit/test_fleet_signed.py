"""Records of files that a workflow signed are marked; with an attestation, no others are taken."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from ivhl.asv.publish import publish
from ivhl.cli import app
from ivhl.errors import ResultsError, SpecError
from ivhl.fleet import signed
from ivhl.fleet.bring import import_records
from ivhl.fleet.signed import load_attestations, verified
from ivhl.records.record import to_json
from ivhl.tracker.store.kept import NAME, digest_of, load_provenance
from tests.builders.fleet import a_record, make_fleet_project

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders.sigstore import Sigstore

REPOSITORY = "they/theirs"
WORKFLOW = f"{REPOSITORY}/.github/workflows/bench.yml@refs/heads/main"
CLAIMS = {
    "workflow": f"https://github.com/{WORKFLOW}",
    "runner": "github-hosted",
    "commit": "a" * 40,
    "run": f"https://github.com/{REPOSITORY}/actions/runs/1/attempts/1",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_fleet_project(tmp_path)
    return tmp_path


def statement(*files: Path) -> str:
    """Return what an attestation of files says."""
    subjects = [
        {"name": file.name, "digest": {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()}}
        for file in files
    ]
    return json.dumps({"_type": "https://in-toto.io/Statement/v1", "subject": subjects})


@pytest.fixture
def signature(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a statement for a bundle that the workflow signed: Sigstore is not asked."""

    def signed_by(bundle: str, signer: str) -> tuple[str, bytes, dict[str, str]]:
        if signer not in (REPOSITORY, WORKFLOW):
            raise ValueError("certificate of another repository")
        return "application/vnd.in-toto+json", bundle.encode(), CLAIMS

    monkeypatch.setattr(signed, "verified", signed_by)


def offer(root: Path, name: str, *records: Any) -> Path:  # noqa: ANN401  (records)
    path = root / "incoming" / f"{name}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{to_json(record)}\n" for record in records))
    return path


@pytest.mark.usefixtures("signature")
def test_records_of_an_attested_file_are_taken_and_marked_and_no_others(root: Path) -> None:
    ours, other = a_record(root), a_record(root, torch="2.5.1")
    file = offer(root, "ours", ours)
    bundle = root / "attestation.json"
    bundle.write_text(statement(file))
    offer(root, "other", other)
    for _ in range(2):
        done = import_records(
            root,
            [root / "incoming"],
            root / "results",
            attested=load_attestations(bundle, WORKFLOW),
        )
        (refused,) = done.refused
        assert "must be in a file that the attestation names" in refused.rule
        assert refused.place.endswith("other.jsonl:1")
    (line,) = (root / "results" / NAME).read_text().splitlines()
    assert json.loads(line)["records"] == [digest_of(ours)]
    found = load_provenance(root / "results")
    assert set(found) == {digest_of(ours)}
    assert found[digest_of(ours)].repository == REPOSITORY
    # Later and without an attestation, both are taken, and one of them is marked.
    assert import_records(root, [root / "incoming"], root / "results").refused == ()
    assert len((root / "results" / NAME).read_text().splitlines()) == 1
    site = publish(root, root / "site", asv=False).output
    data = [path.read_text() for path in site.glob("data/*/*/*.js")]
    assert len(data) == 2
    assert sorted("Signed by" in text for text in data) == [False, True]
    assert sum(CLAIMS["run"] in text for text in data) == 1


@pytest.mark.usefixtures("signature")
def test_a_file_that_was_changed_after_it_was_signed_is_refused(root: Path) -> None:
    file = offer(root, "ours", a_record(root))
    bundle = root / "attestations.jsonl"
    bundle.write_text(f"{statement(file)}\n{statement(root / 'asv.conf.json')}\n")
    attested = load_attestations(bundle, REPOSITORY)
    assert len(attested) == 2
    with file.open("a") as more:
        more.write(to_json(a_record(root, minute=5)) + "\n")
    done = import_records(root, [file], root / "results", attested=attested)
    assert done.new.total() == 0
    assert len(done.refused) == 2
    assert not (root / "results" / NAME).exists()


@pytest.mark.usefixtures("signature")
@pytest.mark.parametrize(
    "text", ["", "\n", "5", "null", "{}", '{"subject": 5}', "[" * 100_000, "\xff", "{}\n{}"]
)
def test_an_attestation_that_is_none_is_an_error_with_a_sentence(root: Path, text: str) -> None:
    path = root / "attestation.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(SpecError, match=r"attestation\.json"):
        load_attestations(path, REPOSITORY)


@pytest.mark.usefixtures("signature")
@pytest.mark.parametrize("signer", ["they", "they/theirs/", "they/a b", "-o/x y", "they/x/y"])
def test_a_signer_that_cannot_be_is_named(root: Path, signer: str) -> None:
    with pytest.raises(SpecError, match="--signer: must be OWNER/NAME"):
        load_attestations(root / "pyproject.toml", signer)


@pytest.mark.usefixtures("signature")
def test_a_file_of_attestations_is_a_plain_one_and_another_signer_is_refused(root: Path) -> None:
    for place in (root / "none", root):
        with pytest.raises(SpecError, match="must be a file"):
            load_attestations(place, REPOSITORY)
    path = root / "attestation.json"
    path.write_text(statement())
    with pytest.raises(SpecError, match="attestation 1 is not signed by me/mine: certificate of"):
        load_attestations(path, "me/mine")


def test_the_command_wants_an_attestation_and_its_signer(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    file = offer(root, "ours", a_record(root))
    done = CliRunner().invoke(app, ["import", str(file), "--attestation", "x"])
    assert isinstance(done.exception, SpecError)
    assert "give both or neither" in str(done.exception)
    monkeypatch.setitem(sys.modules, "sigstore.errors", None)
    (root / "bundle.json").write_text("{}")
    done = CliRunner().invoke(
        app, ["import", str(file), "--attestation", "bundle.json", "--signer", REPOSITORY]
    )
    assert isinstance(done.exception, SpecError)
    assert "needs the package sigstore" in str(done.exception)
    assert not (root / "results").exists()


@pytest.mark.parametrize("line", [b"\xff", b"[" * 100_000, b"null", b"{}", b'{"records": 5}'])
def test_a_line_that_is_no_provenance_is_named_and_the_site_does_without(
    root: Path, line: bytes
) -> None:
    (root / "results").mkdir()
    (root / "results" / NAME).write_bytes(b"\n" + line + b"\n")
    with pytest.raises(ResultsError, match=rf"{NAME}:2: no provenance"):
        load_provenance(root / "results")
    (problem,) = publish(root, root / "site", asv=False).problems
    assert problem.startswith(f"results/{NAME}:2: no provenance")


# By the numbers of Fulcio: issuer, workflow, runner, repository, commit, run.
OF_CERTIFICATE = {
    8: "https://token.actions.githubusercontent.com",
    9: CLAIMS["workflow"],
    11: CLAIMS["runner"],
    12: f"https://github.com/{REPOSITORY}",
    13: CLAIMS["commit"],
    21: CLAIMS["run"],
}


@pytest.fixture
def instance(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Sigstore:
    """Return a Sigstore of our own, trusted in place of the public one; its checks are the real."""
    pytest.importorskip("sigstore", reason="the extra `attestation`")
    from sigstore.models import TrustedRoot  # noqa: PLC0415  (an extra)
    from sigstore.verify import Verifier  # noqa: PLC0415

    from tests.builders.sigstore import Sigstore  # noqa: PLC0415

    made = Sigstore()
    trusted = tmp_path / "trusted-root.json"
    trusted.write_text(made.trusted_root())
    monkeypatch.setattr(
        Verifier,
        "production",
        lambda **_: Verifier(trusted_root=TrustedRoot.from_file(str(trusted))),
    )
    return made


@pytest.mark.parametrize("signer", [REPOSITORY, WORKFLOW])
def test_what_a_workflow_signed_is_believed_and_its_claims_are_read(
    instance: Sigstore, root: Path, signer: str
) -> None:
    file = offer(root, "ours", a_record(root))
    bundle = root / "attestation.json"
    bundle.write_text(instance.sign(statement(file), OF_CERTIFICATE))
    (attested,) = load_attestations(bundle, signer)
    assert attested.files == {hashlib.sha256(file.read_bytes()).hexdigest()}
    signed_by = attested.signer
    assert signed_by.repository == REPOSITORY
    assert {name: getattr(signed_by, name) for name in CLAIMS} == CLAIMS


@pytest.mark.parametrize(
    ("claims", "signer"),
    [
        ({}, "me/mine"),
        ({}, f"{REPOSITORY}/.github/workflows/other.yml@refs/heads/main"),
        ({}, f"{REPOSITORY}/.github/workflows/bench.yml@refs/pull/1/merge"),
        ({8: "https://accounts.google.com"}, REPOSITORY),
        ({12: f"https://github.com/{REPOSITORY}-fork"}, REPOSITORY),
        ({12: f"https://gitlab.com/{REPOSITORY}"}, REPOSITORY),
        ({9: f"https://github.com/{REPOSITORY}/.github/workflows/pr.yml@refs/heads/x"}, WORKFLOW),
    ],
)
def test_what_another_workflow_signed_is_not_believed(
    instance: Sigstore, root: Path, claims: dict[int, str], signer: str
) -> None:
    bundle = root / "attestation.json"
    bundle.write_text(instance.sign(statement(), OF_CERTIFICATE | claims))
    with pytest.raises(SpecError, match="is not signed by"):
        load_attestations(bundle, signer)


def test_what_was_changed_or_signed_elsewhere_is_not_believed(
    instance: Sigstore, root: Path
) -> None:
    from tests.builders.sigstore import Sigstore  # noqa: PLC0415  (needs an extra)

    good = json.loads(instance.sign(statement(root / "pyproject.toml"), OF_CERTIFICATE))
    other = json.loads(instance.sign(statement(root / "asv.conf.json"), OF_CERTIFICATE))
    cases = [
        Sigstore().sign(statement(), OF_CERTIFICATE),
        *(
            json.dumps(good | {part: other[part]})
            for part in ("dsseEnvelope", "verificationMaterial")
        ),
    ]
    entries = [{**good["verificationMaterial"], "tlogEntries": []}]
    changed = json.loads(json.dumps(good["verificationMaterial"]))
    changed["tlogEntries"][0]["integratedTime"] = "1"
    entries.append(changed)
    cases += [json.dumps(good | {"verificationMaterial": one}) for one in entries]
    for text in cases:
        (root / "attestation.json").write_text(text)
        with pytest.raises(SpecError, match="is not signed by"):
            load_attestations(root / "attestation.json", REPOSITORY)
    (root / "attestation.json").write_text(json.dumps(good))
    assert load_attestations(root / "attestation.json", REPOSITORY)


def test_sigstore_refuses_what_no_workflow_signed() -> None:
    pytest.importorskip("sigstore", reason="the extra `attestation`")
    payload = base64.b64encode(b"{}").decode()
    unsigned = {
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {"certificate": {"rawBytes": payload}, "tlogEntries": []},
        "dsseEnvelope": {
            "payload": payload,
            "payloadType": "application/vnd.in-toto+json",
            "signatures": [{"sig": payload, "keyid": ""}],
        },
    }
    for bundle in ("{}", "5", json.dumps(unsigned)):
        with pytest.raises(ValueError):  # noqa: PT011  (sigstore's own words)
            verified(bundle, REPOSITORY)
