"""Fields of a new version that are read from the installer. A strict tenant refuses contradictions."""

from typing import Any

import pytest

from common.auth.internal_tokens import Caller
from common.errors import Problem, TooManyRequests, Unavailable
from tests.support.api import Answer
from tests.support.factories import make_caller, make_tenant
from tests.support.services.catalog import Catalog
from tests.support.tables import each

PRODUCT, UPGRADE = "{0A2D3C5E-7B16-4E1F-9B1C-2F0D3C4B5A69}", "{6F1B2C3D-4E5F-4A6B-8C7D-9E0F1A2B3C4D}"
MSI = {
    "file_type": "MSI",
    "file_architect": "x64",
    "file_scope": "machine",
    "package_version": "1.2.3",
    "productcode": PRODUCT,
    "upgradecode": UPGRADE,
}
SIGNATURE = "ab" * 32
SAID = {
    "product_code": PRODUCT,
    "upgrade_code": UPGRADE,
    "package_family_name": "Tiny.App_8wekyb3d8bbwe",
    "signature_sha256": SIGNATURE,
}


async def administrator(catalog: Catalog, **settings: Any) -> Caller:
    caller = make_caller(make_tenant(**settings))
    await catalog.add_package(caller)
    return caller


async def create(catalog: Catalog, caller: Caller, **fields: str) -> Answer:
    """The response to a form with these fields only, for a new upload."""
    data = {"server_filename": catalog.stubs.add_file(), **fields}
    return await catalog.call(caller, "POST", "add_package_version", "acme.editor", data=data)


@pytest.mark.parametrize(
    ("file_type", "filled"),
    [
        ("MSI", {"PRODUCTCODE": PRODUCT, "UPGRADECODE": UPGRADE}),
        ("WIX", {"PRODUCTCODE": PRODUCT, "UPGRADECODE": UPGRADE}),
        ("BURN", {"PRODUCTCODE": PRODUCT}),
        ("MSIX", {"PACKAGE_FAMILY_NAME": "Tiny.App_8wekyb3d8bbwe"}),
        ("APPX", {"PACKAGE_FAMILY_NAME": "Tiny.App_8wekyb3d8bbwe"}),
        ("EXE", {}),
        ("ZIP", {}),
    ],
)
async def test_windows_identifiers_are_read_from_the_installer(
    catalog: Catalog, caller: Caller, file_type: str, filled: dict[str, str]
) -> None:
    catalog.stubs.claim_fields = SAID
    version = await catalog.version(caller, await catalog.add_version(caller, file_type=file_type))
    identifiers = {name: version[name] for name in ("PRODUCTCODE", "UPGRADECODE", "PACKAGE_FAMILY_NAME")}
    assert identifiers == {"PRODUCTCODE": "", "UPGRADECODE": "", "PACKAGE_FAMILY_NAME": "", **filled}
    # A file without identifiers does not delay the response.
    assert catalog.stubs.operations == [*(["inspect_installer"] if filled else []), "claim_installer"]


async def signature_of(catalog: Catalog, caller: Caller, **fields: str) -> str:
    """The digest of the signature file of a new version."""
    uid = await catalog.add_version(caller, **fields)
    details = await catalog.call(caller, "GET", "get_version_details", uid)
    return str(details.body["signature_sha256"])


@each(("file_type", "digest"), [("MSIX", SIGNATURE), ("APPX", SIGNATURE), ("MSI", ""), ("EXE", ""), ("ZIP", "")])
async def test_the_signature_digest_of_a_package_is_read(catalog: Catalog, file_type: str, digest: str) -> None:
    catalog.stubs.claim_fields = SAID
    assert await signature_of(catalog, await administrator(catalog), file_type=file_type) == digest


async def test_a_sent_signature_digest_stays(catalog: Catalog, caller: Caller) -> None:
    catalog.stubs.claim_fields = SAID
    assert await signature_of(catalog, caller, file_type="MSIX", signature_sha256="cd" * 32) == "cd" * 32


async def test_a_new_version_waits_for_the_findings_of_an_uninspected_file(catalog: Catalog, caller: Caller) -> None:
    catalog.stubs.late_claim_fields = SAID
    assert await signature_of(catalog, caller, file_type="MSIX", package_family_name="Tiny.App_x") == SIGNATURE
    catalog.stubs.claim_fields = {}
    version = await catalog.version(caller, await catalog.add_version(caller, package_version="2", file_type="msi"))
    assert (version["PRODUCTCODE"], version["UPGRADECODE"]) == (PRODUCT, UPGRADE)


async def test_sent_identifiers_wait_for_no_inspection(catalog: Catalog, caller: Caller) -> None:
    await catalog.add_version(caller, file_type="MSI", productcode=PRODUCT, upgradecode=UPGRADE)
    assert catalog.stubs.operations == ["claim_installer"]


@pytest.mark.parametrize("refusal", [Unavailable("Others are inspected."), TooManyRequests("Too many.")])
async def test_a_version_of_an_uninspectable_file_has_no_identifiers(
    catalog: Catalog, caller: Caller, refusal: Problem
) -> None:
    catalog.stubs.not_inspected = refusal
    version = await catalog.version(caller, await catalog.add_version(caller, file_type="MSI"))
    assert (version["PRODUCTCODE"], version["UPGRADECODE"]) == ("", "")


async def test_sent_fields_stay(catalog: Catalog, caller: Caller) -> None:
    catalog.stubs.claim_fields, other = SAID, PRODUCT.replace("0A", "FF")
    version = await catalog.version(caller, await catalog.add_version(caller, productcode=other))
    assert (version["PRODUCTCODE"], version["UPGRADECODE"]) == (other, UPGRADE)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({}, ["1.2.3", "x64", "MSI", "machine"]),
        ({"package_version": "7", "file_type": "EXE"}, ["7", "x64", "EXE", "machine"]),
    ],
    ids=["nothing sent", "some sent"],
)
async def test_missing_required_fields_are_read_from_the_installer(
    catalog: Catalog, caller: Caller, sent: dict[str, str], expected: list[str]
) -> None:
    catalog.stubs.inspected = MSI
    answer = await create(catalog, caller, **sent)
    assert answer.status == 201, answer.body
    version = await catalog.version(caller, answer.body["UID"])
    assert [version[name] for name in ("VERSION", "ARCHITECTURE", "INSTALLER_TYPE", "INSTALLER_SCOPE")] == expected


@each(
    ("field", "read"),
    [
        *((field, "") for field in ("package_version", "file_architect", "file_type", "file_scope")),
        ("package_version", "x" * 129),
    ],
    ids=lambda value: value[:20],
)
async def test_a_field_that_is_neither_sent_nor_read_is_required(
    catalog: Catalog, caller: Caller, field: str, read: str
) -> None:
    catalog.stubs.inspected = {**MSI, field: read}
    answer = await create(catalog, caller)
    assert (answer.status, answer.body["code"]) == (400, "invalid_field")
    assert answer.body["detail"].startswith(f"{field}: ")
    assert catalog.stubs.linked_uids == set()


async def test_a_form_with_an_unknown_file_gets_the_usual_response(catalog: Catalog, caller: Caller) -> None:
    unknown = {"server_filename": "0" * 32}
    assert (await create(catalog, caller, **unknown)).body["detail"].startswith("file_type: ")
    whole = await catalog.post_version(caller, **unknown)
    assert (whole.status, whole.body["code"]) == (404, "installer_not_found")


async def test_an_unavailable_inspection_is_retried(catalog: Catalog, caller: Caller) -> None:
    catalog.stubs.refusal = Unavailable("Others are being inspected.")
    answer = await create(catalog, caller, package_version="1")
    assert answer.status == 500
    assert int(answer.headers["Retry-After"]) > 0


@each(
    ("fields", "inspected", "field"),
    [
        ({}, {**MSI, "file_type": "ZIP"}, "file_type"),
        ({}, {**MSI, "file_type": ""}, "file_type"),
        ({"file_type": "ZIP"}, {"file_type": "EXE"}, "file_type"),
        ({"file_type": "INNO"}, {"file_type": "NULLSOFT"}, "file_type"),
        ({"file_type": "EXE"}, MSI, "file_type"),
        ({"file_architect": "x86"}, MSI, "file_architect"),
        ({"productcode": UPGRADE}, MSI, "productcode"),
        ({"upgradecode": PRODUCT}, MSI, "upgradecode"),
        ({"file_type": "MSIX", "package_family_name": "a"}, {"file_type": "MSIX", "package_family_name": "b"},
         "package_family_name"),
        ({"file_type": "MSIX", "signature_sha256": "cd" * 32}, {"file_type": "MSIX", "signature_sha256": SIGNATURE},
         "signature_sha256"),
        ({}, {"state": "failed", "reason": "damaged"}, "file"),
    ],
)  # fmt: skip
async def test_a_strict_tenant_refuses_a_contradiction_to_the_installer(
    catalog: Catalog, fields: dict[str, str], inspected: dict[str, str], field: str
) -> None:
    catalog.stubs.reset()
    catalog.stubs.inspected = inspected
    strict, caller = await administrator(catalog, strict_installers=True), await administrator(catalog)
    answer = await catalog.post_version(strict, **fields)
    assert (answer.status, answer.body["code"]) == (400, "installer_contradicts")
    assert answer.body["detail"].startswith(f"{field}: ")
    assert catalog.stubs.linked_uids == set()
    assert await catalog.versions(strict) == []
    await catalog.add_version(caller, **fields)


@each(
    ("fields", "inspected"),
    [
        ({}, MSI),
        ({"file_type": "WIX"}, MSI),
        ({"productcode": PRODUCT.lower()}, MSI),
        ({"file_architect": "arm64"}, {**MSI, "file_architect": ""}),
        ({"file_type": "EXE", "file_architect": "x64"}, {"file_type": "EXE", "file_architect": "x86"}),
        ({"file_type": "EXE"}, {"file_type": "NULLSOFT"}),
        ({"file_type": "INNO"}, {"file_type": "EXE"}),
        ({"file_type": "APPX"}, {"file_type": "MSIX"}),
        ({"file_type": "PORTABLE"}, {"file_type": "EXE"}),
        ({"file_type": "FONT"}, {"file_type": ""}),
        ({"package_version": "2024"}, MSI),
        ({"file_scope": "user"}, MSI),
        (
            {"file_type": "MSIX", "signature_sha256": SIGNATURE.upper()},
            {"file_type": "MSIX", "signature_sha256": SIGNATURE},
        ),
    ],
)
async def test_a_strict_tenant_accepts_fields_without_a_contradiction(
    catalog: Catalog, fields: dict[str, str], inspected: dict[str, str]
) -> None:
    catalog.stubs.inspected = inspected
    await catalog.add_version(await administrator(catalog, strict_installers=True), **fields)
