"""The verdict about the signatures of an upload, which is renewed when the rules or the trusted certificates change."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from common.auth.internal_tokens import Caller
from common.mongo import MongoDatabase
from common.settings import BadSetting
from tests.support.samples.pe_builder import make_zip
from tests.support.samples.signed_files import PUBLISHER, make_identity, root, sign, time_authority, unsigned
from tests.support.services.upload import UploadApi, make_uploader, serving_uploads
from tests.support.tables import each
from tests.support.wait import until
from upload_service.inspection.model import Inspection, State
from upload_service.inspection.process import Verifier
from upload_service.routes import signature_check
from upload_service.settings import UploadSettings


def trusting(settings: UploadSettings, folder: Path, *certificates: bytes) -> UploadSettings:
    folder.mkdir(exist_ok=True)
    for number, certificate in enumerate(certificates):
        (folder / f"{number}.pem").write_bytes(certificate)
    return settings.model_copy(update={"signature_trust": folder})


async def verified(api: UploadApi, caller: Caller, name: str) -> Mapping[str, Any]:
    """The verdict when the inspection is finished."""
    found: list[Mapping[str, Any]] = []

    async def done() -> bool:
        body = (await api.service.call(caller, "GET", "inspect_upload", name)).body
        found.append(body["signature"])
        return bool(body["state"] != "waiting")

    await until(done)
    return found[-1]


@each("kind", ["exe", "msix"])  # tests/unit/upload_service/inspection/signatures has every format.
async def test_the_verdict_about_a_signed_upload_is_shown(kind: str, settings: UploadSettings, tmp_path: Path) -> None:
    caller = make_uploader()
    async with serving_uploads(trusting(settings, tmp_path / "trust", root().pem)) as api:
        name = await api.upload(caller, sign(unsigned(kind), authority=time_authority()), name=f"a.{kind}")
        signature = dict(await verified(api, caller, name))
    assert signature.pop("at")
    assert signature.pop("signed_at")
    assert signature == {
        "state": "valid",
        "reason": "",
        "signer": PUBLISHER,
        "issuer": "CN=Tiny Root",
        "revocation": "not checked",
    }


async def test_no_signer_is_trusted_by_default(api: UploadApi) -> None:
    caller = make_uploader()
    name = await api.upload(caller, sign(unsigned("exe")))
    signature = await verified(api, caller, name)
    assert (signature["state"], signature["signer"], signature["signed_at"]) == ("untrusted", PUBLISHER, None)


async def test_other_trusted_certificates_renew_the_verdict(settings: UploadSettings, tmp_path: Path) -> None:
    caller, other = make_uploader(), make_identity("CN=Other", is_authority=True)
    async with serving_uploads(trusting(settings, tmp_path / "other", other.pem)) as api:
        name = await api.upload(caller, sign(unsigned("msi")))
        assert (await verified(api, caller, name))["state"] == "untrusted"
    async with serving_uploads(trusting(settings, tmp_path / "trust", root().pem)) as api:
        assert (await verified(api, caller, name))["state"] == "valid"


async def test_an_upload_with_a_current_verdict_is_not_inspected_again(
    settings: UploadSettings, database: MongoDatabase
) -> None:
    caller = make_uploader()
    async with serving_uploads(settings) as api:
        name = await api.upload(caller, unsigned("exe"))
        first = await verified(api, caller, name)
        assert [await verified(api, caller, name) for _ in range(3)] == [first] * 3
    assert await database["uploads"].count_documents({"server_filename": name, "work.inspect": {"$exists": False}}) == 1


async def test_a_file_of_no_installer_format_is_unsupported(api: UploadApi) -> None:
    caller = make_uploader()
    for content in (make_zip({"a.exe": b"MZ"}), b"OTTO a font"):
        name = await api.upload(caller, content)
        assert (await verified(api, caller, name))["state"] == "unsupported"


def test_an_inspection_that_failed_has_no_valid_signature() -> None:
    failed = Inspection("a.exe", State.FAILED, "damaged")
    waiting = replace(failed, state=State.PENDING, reason="")
    done = replace(waiting, state=State.DONE)
    assert [signature_check(one)["state"] for one in (failed, waiting, done)] == ["unsupported", "pending", "pending"]


async def test_the_service_starts_only_with_readable_trusted_certificates(
    settings: UploadSettings, tmp_path: Path
) -> None:
    (tmp_path / "trust.pem").write_text("no certificate")
    with pytest.raises(BadSetting, match="SIGNATURE_TRUST"):
        Verifier.load(tmp_path / "trust.pem")
    with pytest.raises(BadSetting, match="SIGNATURE_TRUST"):
        async with serving_uploads(settings.model_copy(update={"signature_trust": tmp_path / "missing"})):
            pass
