"""A Sigstore of our own: authority, logs, and what a workflow signs with them.

Everything is made as the public instance makes it (Fulcio's certificates with a certificate
timestamp, Rekor's entries with promise, proof and checkpoint), so that the real checks run on it.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Mapping

PAYLOAD_TYPE = "application/vnd.in-toto+json"
_TIMESTAMPS = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_CLAIM = "1.3.6.1.4.1.57264.1"
_LOG = "rekor.test"


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _der(key: ec.EllipticCurvePrivateKey) -> bytes:
    data: bytes = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return data


def _sign(key: ec.EllipticCurvePrivateKey, data: bytes) -> bytes:
    signature: bytes = key.sign(data, ec.ECDSA(hashes.SHA256()))
    return signature


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _der_of(tag: int, data: bytes) -> bytes:
    size = len(data)
    short = size < 0x80
    length = bytes([size]) if short else b"\x82" + size.to_bytes(2, "big")
    return bytes([tag]) + length + data


@dataclass
class Sigstore:
    """The keys of an instance, at one moment."""

    now: dt.datetime = field(
        default_factory=lambda: dt.datetime.now(dt.UTC).replace(microsecond=0)
    )
    authority: ec.EllipticCurvePrivateKey = field(default_factory=_new_key)
    log: ec.EllipticCurvePrivateKey = field(default_factory=_new_key)
    certificates: ec.EllipticCurvePrivateKey = field(default_factory=_new_key)

    def __post_init__(self) -> None:
        """Make the certificate of the authority."""
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test")])
        self._root = (
            self._certificate(self._name, self.authority.public_key(), days=1)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(of_authority=True), critical=True)
            .sign(self.authority, hashes.SHA256())
        )

    def trusted_root(self) -> str:
        """Return what verifiers trust, as JSON."""
        start = (self.now - dt.timedelta(days=2)).isoformat().replace("+00:00", "Z")
        log, certificates = (
            {
                "baseUrl": f"https://{_LOG}",
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": _b64(_der(key)),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": {"start": start},
                },
                "logId": {"keyId": _b64(hashlib.sha256(_der(key)).digest())},
            }
            for key in (self.log, self.certificates)
        )
        authority = {
            "subject": {"organization": "test", "commonName": "a test"},
            "uri": "https://fulcio.test",
            "certChain": {
                "certificates": [{"rawBytes": _b64(self._root.public_bytes(Encoding.DER))}]
            },
            "validFor": {"start": start},
        }
        return json.dumps(
            {
                "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                "tlogs": [log],
                "certificateAuthorities": [authority],
                "ctlogs": [certificates],
                "timestampAuthorities": [],
            }
        )

    def sign(self, statement: str, claims: Mapping[int, str]) -> str:
        """Return the bundle of a workflow that signs a statement.

        Args:
            statement: Content.
            claims: What its certificate says of it, by the number of the claim.
        """
        key = _new_key()
        certificate = self._of_workflow(key, claims)
        payload = statement.encode()
        kind = PAYLOAD_TYPE.encode()
        signature = _sign(key, b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload))
        body = _canonical(
            {
                "apiVersion": "0.0.1",
                "kind": "dsse",
                "spec": {
                    "envelopeHash": _sha256(payload),
                    "payloadHash": _sha256(payload),
                    "signatures": [
                        {
                            "signature": _b64(signature),
                            "verifier": _b64(certificate.public_bytes(Encoding.PEM)),
                        }
                    ],
                },
            }
        )
        return json.dumps(
            {
                "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
                "verificationMaterial": {
                    "certificate": {"rawBytes": _b64(certificate.public_bytes(Encoding.DER))},
                    "tlogEntries": [self._entry(body)],
                },
                "dsseEnvelope": {
                    "payload": _b64(payload),
                    "payloadType": PAYLOAD_TYPE,
                    "signatures": [{"sig": _b64(signature)}],
                },
            }
        )

    def _entry(self, body: bytes) -> dict[str, Any]:
        """Return the entry of a log that has no other one."""
        log_id = hashlib.sha256(_der(self.log)).digest()
        time = int(self.now.timestamp())
        about = {"body": _b64(body), "integratedTime": time, "logID": log_id.hex(), "logIndex": 0}
        root = hashlib.sha256(b"\x00" + body).digest()
        note = f"{_LOG} - 1\n1\n{_b64(root)}\n"
        mark = _b64(log_id[:4] + _sign(self.log, note.encode()))
        return {
            "logIndex": "0",
            "logId": {"keyId": _b64(log_id)},
            "kindVersion": {"kind": "dsse", "version": "0.0.1"},
            "integratedTime": str(time),
            "inclusionPromise": {"signedEntryTimestamp": _b64(_sign(self.log, _canonical(about)))},
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": _b64(root),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {"envelope": f"{note}\n\u2014 {_LOG} {mark}\n"},
            },
            "canonicalizedBody": _b64(body),
        }

    def _of_workflow(
        self, key: ec.EllipticCurvePrivateKey, claims: Mapping[int, str]
    ) -> x509.Certificate:
        """Return a certificate with the promise of the log of certificates to list it."""
        made = (
            self._certificate(x509.Name([]), key.public_key(), days=0)
            .add_extension(_usage(of_authority=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False
            )
            .add_extension(
                x509.SubjectAlternativeName([x509.UniformResourceIdentifier(claims[9])]),
                critical=True,
            )
        )
        for number, claim in claims.items():
            oid = x509.ObjectIdentifier(f"{_CLAIM}.{number}")
            value = _der_of(0x0C, claim.encode())
            made = made.add_extension(x509.UnrecognizedExtension(oid, value), critical=False)
        before = made.sign(self.authority, hashes.SHA256()).tbs_certificate_bytes
        stamp = struct.pack(">Q", int(self.now.timestamp() * 1000))
        issuer = hashlib.sha256(_der(self.authority)).digest()
        listed = b"\x00\x01" + issuer + len(before).to_bytes(3, "big") + before
        signature = _sign(self.certificates, b"\x00\x00" + stamp + listed + b"\x00\x00")
        promise = b"\x00" + hashlib.sha256(_der(self.certificates)).digest() + stamp + b"\x00\x00"
        promise += b"\x04\x03" + len(signature).to_bytes(2, "big") + signature
        one = len(promise).to_bytes(2, "big") + promise
        value = _der_of(0x04, len(one).to_bytes(2, "big") + one)
        made = made.add_extension(x509.UnrecognizedExtension(_TIMESTAMPS, value), critical=False)
        return made.sign(self.authority, hashes.SHA256())

    def _certificate(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, days: int
    ) -> x509.CertificateBuilder:
        lives = dt.timedelta(days=days, minutes=10)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.now - lives)
            .not_valid_after(self.now + lives)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.authority.public_key()),
                critical=False,
            )
        )


def _usage(*, of_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not of_authority,
        key_cert_sign=of_authority,
        crl_sign=of_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _canonical(data: object) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


def _sha256(data: bytes) -> dict[str, str]:
    return {"algorithm": "sha256", "value": hashlib.sha256(data).hexdigest()}
