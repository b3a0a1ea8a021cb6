"""The verdicts about signed files, of which osslsigncode makes the signatures."""

from datetime import UTC, datetime, timedelta
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.support.samples.msi_samples import MACHINE_MSI
from tests.support.samples.pe_builder import archive, program
from tests.support.samples.signed_files import (
    FORMATS,
    NOW,
    PUBLISHER,
    YEAR,
    Identity,
    Key,
    as_zip64,
    expired_signer,
    make_identity,
    package,
    root,
    sign,
    signer,
    time_authority,
    unsigned,
)
from tests.support.tables import each
from upload_service.inspection.model import Signature, SignatureState, Untrusted
from upload_service.inspection.signatures.trust import TrustStore, fingerprint, read_trusted
from upload_service.inspection.signatures.verification import verify_file

OTHER_ROOT = make_identity("CN=Other Root", is_authority=True)
LIFETIME = x509.ObjectIdentifier("1.3.6.1.4.1.311.10.3.13")


@cache
def rsa_signer() -> Identity:
    return make_identity(PUBLISHER, root(), key=rsa.generate_private_key(65537, 2048))


def verdict(content: bytes, *trusted: Identity) -> Signature:
    store = TrustStore([one.certificate for one in trusted or (root(),)])
    return verify_file(BytesIO(content), len(content), store)


def state(content: bytes, *trusted: Identity) -> SignatureState:
    return verdict(content, *trusted).state


@each("kind", FORMATS)
def test_a_signed_file_is_valid_and_names_its_signer(kind: str) -> None:
    expected = Signature(SignatureState.VALID, signer=PUBLISHER, issuer="CN=Tiny Root")
    assert verdict(sign(unsigned(kind))) == expected


@each("kind", FORMATS)
def test_an_unsigned_file_is_unsigned(kind: str) -> None:
    assert verdict(unsigned(kind)) == Signature(SignatureState.UNSIGNED)


@each("content", [archive(a_exe="MZ"), b"#!/bin/sh", b"MZ".ljust(64, b"\0") + bytes(64)], ids=["zip", "script", "dos"])
def test_a_file_that_cannot_be_signed_is_unsupported(content: bytes) -> None:
    assert state(content) is SignatureState.UNSUPPORTED


@each("kind", FORMATS)
def test_a_signer_of_an_unknown_authority_is_untrusted(kind: str) -> None:
    content = sign(unsigned(kind))
    assert state(content, OTHER_ROOT) is SignatureState.UNTRUSTED
    assert verify_file(BytesIO(content), len(content), TrustStore([])).state is SignatureState.UNTRUSTED


@each("kind", FORMATS)
def test_a_timestamp_keeps_the_signature_of_an_expired_certificate(kind: str) -> None:
    at = NOW - 2 * YEAR
    assert state(sign(unsigned(kind), expired_signer())) is SignatureState.EXPIRED
    result = verdict(sign(unsigned(kind), expired_signer(), authority=time_authority(), at=at))
    assert (result.state, result.signed_at) == (SignatureState.VALID, at.isoformat())


def test_a_timestamp_in_the_future_is_refused() -> None:
    assert (
        state(sign(unsigned("exe"), authority=time_authority(), at=NOW + timedelta(days=1))) is SignatureState.INVALID
    )


@each("at", [NOW - timedelta(days=100), NOW - 4 * YEAR], ids=["after", "before"])
def test_a_timestamp_outside_the_validity_of_the_certificate_is_refused(at: datetime) -> None:
    signed = sign(unsigned("exe"), expired_signer(), authority=time_authority(), at=at)
    assert state(signed) in {SignatureState.EXPIRED, SignatureState.UNTRUSTED, SignatureState.INVALID}


def test_a_timestamp_of_an_unknown_authority_is_untrusted() -> None:
    authority = make_identity("CN=Time", OTHER_ROOT, usages=[ExtendedKeyUsageOID.TIME_STAMPING])
    signed = sign(unsigned("exe"), authority=authority)
    refused = verdict(signed)
    assert refused.state is SignatureState.UNTRUSTED
    assert refused.reason.startswith("The certificate of the timestamp is not trusted: it leads to no trusted")
    assert state(signed, root(), OTHER_ROOT) is SignatureState.VALID


def test_a_certificate_for_one_lifetime_expires_in_spite_of_a_timestamp() -> None:
    usages = [ExtendedKeyUsageOID.CODE_SIGNING, LIFETIME]
    identity = make_identity(PUBLISHER, root(), usages=usages, start=NOW - 3 * YEAR, end=NOW - YEAR)
    signed = sign(unsigned("exe"), identity, authority=time_authority(), at=NOW - 2 * YEAR)
    assert state(signed) is SignatureState.EXPIRED


@each(
    "usages",
    [(), [ExtendedKeyUsageOID.SERVER_AUTH], [ExtendedKeyUsageOID.TIME_STAMPING]],
    ids=["none", "server", "timestamps"],
)
def test_a_certificate_that_is_not_for_code_is_untrusted(usages: list[x509.ObjectIdentifier]) -> None:
    result = verdict(sign(unsigned("exe"), make_identity(PUBLISHER, root(), usages=usages)))
    assert result.state is SignatureState.UNTRUSTED


def test_an_authority_for_timestamps_is_for_nothing_else() -> None:
    usages = [ExtendedKeyUsageOID.TIME_STAMPING, ExtendedKeyUsageOID.CODE_SIGNING]
    store = TrustStore([root().certificate])
    store.check(time_authority().certificate, (), ExtendedKeyUsageOID.TIME_STAMPING, NOW)
    with pytest.raises(Untrusted):
        store.check(make_identity("CN=Time", root(), usages=usages).certificate, (), usages[0], NOW)


def test_a_chain_through_an_intermediate_authority_is_valid() -> None:
    middle = make_identity("CN=Middle", root(), is_authority=True)
    signed = sign(unsigned("exe"), make_identity(PUBLISHER, middle), chain=[middle])
    assert state(signed) is SignatureState.VALID


def test_a_chain_through_a_certificate_of_no_authority_is_untrusted() -> None:
    signed = sign(unsigned("exe"), make_identity(PUBLISHER, signer()), chain=[signer()])
    assert state(signed) is SignatureState.UNTRUSTED


def key_usage(**usages: bool) -> x509.KeyUsage:
    names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    more = ("key_cert_sign", "crl_sign", "encipher_only", "decipher_only")
    return x509.KeyUsage(**dict.fromkeys((*names, *more), False) | usages)


@each(("usage", "expected"), [("key_agreement", SignatureState.UNTRUSTED), ("digital_signature", SignatureState.VALID)])
def test_a_certificate_must_be_for_signing(usage: str, expected: SignatureState) -> None:
    identity = make_identity(PUBLISHER, root(), key_usage=key_usage(**{usage: True}))
    assert state(sign(unsigned("exe"), identity)) is expected


def test_an_authority_for_other_usages_is_untrusted() -> None:
    usages = [ExtendedKeyUsageOID.SERVER_AUTH]
    for middle in (
        make_identity("CN=Middle", root(), is_authority=True, usages=usages),
        make_identity("CN=Middle", root(), is_authority=True, key_usage=key_usage(crl_sign=True)),
    ):
        signed = sign(unsigned("exe"), make_identity(PUBLISHER, middle), chain=[middle])
        assert state(signed) is SignatureState.UNTRUSTED


def test_a_changed_rsa_signature_is_invalid() -> None:
    signed = sign(unsigned("exe"), rsa_signer())
    assert state(signed) is SignatureState.VALID
    for at in range(len(signed) - 200, len(signed) - 40, 16):
        changed = signed[:at] + bytes([signed[at] ^ 1]) + signed[at + 1 :]
        assert state(changed) is SignatureState.INVALID


@each(
    "short",
    [rsa.generate_private_key(65537, 1024), ec.generate_private_key(ec.SECP192R1())],  # noqa: S505  that is the test
    ids=["rsa", "curve"],
)
def test_a_short_key_is_untrusted(short: Key) -> None:
    store, usage = TrustStore([root().certificate]), ExtendedKeyUsageOID.CODE_SIGNING
    with pytest.raises(Untrusted, match="too short"):
        store.check(make_identity(PUBLISHER, root(), key=short).certificate, (), usage, NOW)


WEAK, STRONG = {"md5", "sha1"}, {"sha256", "sha384", "sha512"}


@each("digest", [*WEAK, *STRONG])
@each("kind", ["exe", "msi"])
def test_only_a_strong_digest_is_valid(kind: str, digest: str) -> None:
    expected = SignatureState.VALID if digest in STRONG else SignatureState.INVALID
    assert state(sign(unsigned(kind), rsa_signer(), "-h", digest)) is expected
    assert digest in WEAK or state(sign(unsigned(kind), None, "-h", digest)) is SignatureState.VALID


@each("options", [["-ph"], ["-n", "Tiny", "-i", "https://tiny.example"], ["-jp", "low"]], ids=str)
def test_a_signature_with_further_data_of_its_signer_is_valid(options: list[str]) -> None:
    assert state(sign(unsigned("exe"), None, *options)) is SignatureState.VALID


@each("kind", ["exe", "msi"])
def test_every_signature_of_a_file_must_be_valid(kind: str) -> None:
    once = sign(unsigned(kind))
    stranger = make_identity("CN=Stranger", OTHER_ROOT)
    assert state(sign(once, None, "-nest")) is SignatureState.VALID
    assert state(sign(once, stranger, "-nest")) is SignatureState.UNTRUSTED
    assert state(sign(sign(unsigned(kind), None, "-h", "sha1"), None, "-nest")) is SignatureState.INVALID


@each("kind", ["exe", "msi"])
def test_more_signatures_than_the_limit_are_unsupported(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upload_service.inspection.signatures.authenticode.SIGNATURES_LIMIT", 1)
    assert state(sign(sign(unsigned(kind)), None, "-nest")) is SignatureState.UNSUPPORTED


def test_unsigned_data_in_a_signature_is_unsupported() -> None:
    assert state(sign(unsigned("exe"), None, "-addUnauthenticatedBlob")) is not SignatureState.VALID


def test_the_signature_of_another_program_is_invalid() -> None:
    signed, other = sign(unsigned("exe")), program(sections=[(b".text", bytes(range(255, -1, -1)) * 3)])
    start = len(unsigned("exe"))
    grafted = bytearray(other + signed[start:])
    grafted[64 + 24 + 112 + 32 : 64 + 24 + 112 + 40] = signed[64 + 24 + 112 + 32 : 64 + 24 + 112 + 40]
    assert len(other) == start
    assert state(bytes(grafted)) is SignatureState.INVALID


@each("kind", FORMATS)
@each("addition", [b"\0", b"PK\x05\x06" + bytes(18), b"x" * 5000], ids=["zero", "zip", "long"])
def test_data_after_the_end_is_never_valid(kind: str, addition: bytes) -> None:
    signed = sign(unsigned(kind))
    # Zeros after an MSI are what a storage leaves: no reader finds anything there.
    expected = kind == "msi" and addition == b"\0"
    assert (state(signed + addition) is SignatureState.VALID) == expected


@each("kind", FORMATS)
def test_a_truncated_file_is_never_valid(kind: str) -> None:
    signed = sign(unsigned(kind), authority=time_authority())
    # The last sector of an MSI may be unused.
    lengths = [0, 1, 8, 64, 512, len(signed) // 2, len(signed) - 1100]
    assert SignatureState.VALID not in {state(signed[:length]) for length in lengths}


def test_a_package_with_the_end_of_a_long_archive_is_valid() -> None:
    signed = sign(as_zip64(package()))
    assert state(signed) is SignatureState.VALID
    accepted = []
    for at in range(len(signed) - 98, len(signed)):
        changed = bytearray(signed)
        changed[at] ^= 1
        accepted += [at] if state(bytes(changed)) is SignatureState.VALID else []
    assert not accepted


def test_the_packages_of_a_bundle_are_not_in_its_block_map() -> None:
    manifest = {"AppxMetadata/AppxBundleManifest.xml": b"<Bundle/>"}
    signed = sign(package(manifest, unmapped={"tiny_x64.msix": sign(package())}))
    assert state(signed) is SignatureState.VALID
    assert state(sign(package(unmapped={"tiny_x64.msix": sign(package())}))) is SignatureState.INVALID
    at = signed.index(b"tiny_x64.msix") + 500
    assert state(signed[:at] + b"x" + signed[at + 1 :]) is SignatureState.INVALID


@each(
    ("files", "reason"),
    [
        ({"unmapped": {"evil.exe": b"MZ"}}, "block map"),
        ({"changed": {"app/tiny%20one.exe": b"MZ"}}, "was changed"),
        ({"changed": {"app/tiny%20one.exe": None}}, "block map"),
    ],
)
def test_a_package_has_exactly_the_files_of_its_block_map(files: dict[str, Any], reason: str) -> None:
    result = verdict(sign(package(**files)))
    assert result.state is SignatureState.INVALID
    assert reason in result.reason


@each("count", [1, 3])
def test_trusted_certificates_are_read_from_a_file_or_a_folder(count: int, tmp_path: Path) -> None:
    authorities = [root(), OTHER_ROOT, make_identity("CN=Third", is_authority=True)][:count]
    for number, authority in enumerate(authorities):
        (tmp_path / f"{number}.pem").write_bytes(authority.pem)
    joined = tmp_path / "all"
    joined.write_bytes(b"".join(authority.pem for authority in authorities))
    assert read_trusted(tmp_path) == read_trusted(joined) == tuple(one.certificate for one in authorities)


def test_trusted_certificates_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("no certificate")
    (tmp_path / "empty").mkdir()
    for name, reason in {"broken": "PEM", "empty": "no certificate", "missing": "missing"}.items():
        with pytest.raises((OSError, ValueError), match=reason):
            read_trusted(tmp_path / name)


def test_the_fingerprint_of_trusted_certificates_depends_on_all() -> None:
    first, second = root().certificate, OTHER_ROOT.certificate
    assert fingerprint([first, second]) == fingerprint([second, first])
    assert len({fingerprint(one) for one in ([], [first], [second], [first, second])}) == 4


def test_a_verdict_is_read_as_it_was_written() -> None:
    result = Signature(SignatureState.VALID, "", PUBLISHER, "CN=Root", datetime.now(UTC).isoformat(), "")
    assert Signature.parse(result.to_document()) == result


@each("change", [{"state": "good"}, {"signer": "a\nb"}, {"reason": "x" * 300}], ids=str)
def test_a_malformed_verdict_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="not a"):
        Signature.parse({**Signature(SignatureState.VALID).to_document(), **change})


def test_a_signature_of_an_earlier_sample_is_untrusted() -> None:
    assert state(MACHINE_MSI) is SignatureState.UNTRUSTED


def test_a_trusted_signer_needs_no_trusted_authority() -> None:
    signed = sign(unsigned("exe"))
    assert state(signed, signer()) is SignatureState.VALID
    assert state(sign(unsigned("exe"), expired_signer()), signer()) is SignatureState.UNTRUSTED
