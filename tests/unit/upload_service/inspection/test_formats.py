"""The formats of installers, and the findings in them."""

import hashlib
from importlib.metadata import files
from io import BytesIO
from pathlib import Path

import olefile
import pytest

from tests.support.samples import pe_builder
from tests.support.samples.msi_samples import MACHINE_MSI, USER_MSI
from tests.support.samples.pe_builder import ARM64, X64, X86, archive, make_zip, program, version_resource
from tests.support.tables import each
from upload_service.inspection.formats import Damaged, inspect_file
from upload_service.inspection.formats.archives import publisher_id
from upload_service.inspection.model import Findings, Format, Machine, Nested, Reach, Signer, clean_text

MICROSOFT = "CN=Microsoft Corporation, O=Microsoft Corporation, L=Redmond, S=Washington, C=US"
TINY = Signer("Tiny Works GmbH", "Tiny Trust Code Signing CA")
MANIFEST = """<?xml version="1.0" encoding="utf-8"?>
<Package xmlns="http://schemas.microsoft.com/appx/manifest/foundation/windows/10">
  <Identity Name="Tiny.App" Publisher="{publisher}" Version="1.2.3.0" ProcessorArchitecture="{machine}"/>
  <Properties><DisplayName>{name}</DisplayName><PublisherDisplayName>Tiny Works</PublisherDisplayName></Properties>
</Package>"""
BUNDLE_MANIFEST = """<Bundle xmlns="http://schemas.microsoft.com/appx/2013/bundle">
  <Identity Name="Tiny.App" Publisher="CN=Tiny" Version="2.0.0.0"/>
  <Packages>
    <Package Type="application" Version="2.0.0.0" Architecture="{first}" FileName="a.msix"/>
    <Package Type="application" Version="2.0.0.0" Architecture="{second}" FileName="b.msix"/>
    <Package Type="resource" Version="2.0.0.0" FileName="c.msix"/>
  </Packages>
</Bundle>"""


def found_in(content: bytes, suffix: str = "") -> Findings:
    return inspect_file(BytesIO(content), suffix)


def package(suffix: str = ".msix", *, machine: str = "x64", publisher: str = MICROSOFT, name: str = "Tiny") -> Findings:
    manifest = MANIFEST.format(machine=machine, publisher=publisher, name=name)
    return found_in(make_zip({"AppxManifest.xml": manifest, "app/tiny.exe": "MZ"}), suffix)


def signature() -> bytes:
    """The PKCS #7 signature of a signed MSI."""
    with olefile.OleFileIO(BytesIO(MACHINE_MSI)) as ole:
        content: bytes = ole.openstream("\x05DigitalSignature").read()
    return content


def without_stream(name: str) -> bytes:
    """An MSI whose table of this name has another name; the stored names have two characters in one."""
    stored = {"_StringPool": "\u4840\u3f3f", "Property": "\u4840\u4559"}[name].encode("utf-16-le")
    assert stored in MACHINE_MSI
    return MACHINE_MSI.replace(stored, "\u4840\u3800".encode("utf-16-le"))


def of_distribution(package: str, ending: str) -> list[Path]:
    """Programs in a package of PyPI."""
    return [Path(str(path.locate())) for path in files(package) or [] if path.name.endswith(ending)]


def test_an_msi_has_product_scope_and_signer() -> None:
    assert found_in(MACHINE_MSI) == Findings(
        format=Format.MSI,
        machine=Machine.X64,
        reach=Reach.MACHINE,
        version="1.2.3.4",
        product_name="Tiny Product",
        publisher="Tiny Works GmbH",
        product_code="{0A2D3C5E-7B16-4E1F-9B1C-2F0D3C4B5A69}",
        upgrade_code="{6F1B2C3D-4E5F-4A6B-8C7D-9E0F1A2B3C4D}",
        signer=TINY,
    )


def test_an_msi_may_have_its_own_code_page_and_very_long_texts() -> None:
    assert found_in(USER_MSI) == Findings(
        format=Format.MSI,
        machine=Machine.X86,
        reach=Reach.USER,
        version="2.0.1",
        product_name="Kleines Büro",
        publisher="Müller & Söhne",
        product_code="{5B1D7E90-3C2A-4F68-A1B2-C3D4E5F60718}",
        upgrade_code="{0F1E2D3C-4B5A-4968-8776-655443322110}",
    )


def test_an_msi_made_with_wix_is_recognised() -> None:
    content = MACHINE_MSI.replace(b"msitools 0.101\0", b"WiX Toolset  4\0")
    assert content != MACHINE_MSI
    assert found_in(content).format is Format.WIX


@each(
    ("ending", "machine"),
    [
        ("cli-32.exe", Machine.X86),
        ("cli-64.exe", Machine.X64),
        ("cli-arm64.exe", Machine.ARM64),
    ],
)
def test_the_launchers_of_setuptools_have_their_machines(ending: str, machine: Machine) -> None:
    (path,) = of_distribution("setuptools", ending)
    assert found_in(path.read_bytes()) == Findings(format=Format.EXE, machine=machine)


@each(("ending", "machine"), [("t64.exe", Machine.X64), ("w64-arm.exe", Machine.ARM64)])
def test_the_launchers_of_distlib_have_names_and_versions(ending: str, machine: Machine) -> None:
    (path,) = of_distribution("pip", ending)
    findings = found_in(path.read_bytes())
    assert (findings.format, findings.machine) == (Format.EXE, machine)
    assert (findings.product_name, findings.publisher) == ("Simple Launcher", "Simple Launcher User")
    assert findings.version.count(".") == 3


@each(
    ("content", "expected"),
    [
        (program(X86, resources={(pe_builder.RCDATA, 11111): pe_builder.INNO_TABLE}), Format.INNO),
        (program(X86).replace(bytes(4), b"Inno", 1)[:48] + b"Inno" + program(X86)[52:], Format.INNO),
        (
            program(X86, sections=[(b".text", b"x" * 700)], overlay=pe_builder.NULLSOFT_HEADER + b"solid"),
            Format.NULLSOFT,
        ),
        (program(X86, sections=[(b".text", pe_builder.NULLSOFT_HEADER)]), Format.EXE),
        (program(X86, sections=[(b".wixburn", pe_builder.BURN_DATA)]), Format.BURN),
        (program(X86, sections=[(b".wixburn", bytes(48))]), Format.EXE),
        (program(X86, resources={(pe_builder.RCDATA, 11111): b"something else"}), Format.EXE),
    ],
    ids=["inno", "old-inno", "nullsoft", "nullsoft-as-data", "burn", "burn-without-magic", "no-inno"],
)
def test_the_stub_determines_the_installer_type(content: bytes, expected: Format) -> None:
    assert found_in(content).format is expected


def test_a_wix_bundle_is_uninstalled_under_its_own_id() -> None:
    findings = found_in(program(X64, sections=[(b".wixburn", pe_builder.BURN_DATA)]))
    assert findings.product_code == f"{{{pe_builder.BUNDLE}}}".upper()


@each(("machine", "expected"), [(X86, Machine.UNKNOWN), (X64, Machine.X64), (ARM64, Machine.ARM64)])
def test_an_x86_stub_has_an_unknown_machine(machine: int, expected: Machine) -> None:
    inno = program(machine, resources={(pe_builder.RCDATA, 11111): pe_builder.INNO_TABLE})
    assert found_in(inno).machine is expected


@each(
    ("texts", "version"),
    [
        ({"ProductVersion": "1.2", "FileVersion": "1.2.3.4"}, "1.2"),
        ({"ProductVersion": "  1.2.3    ", "FileVersion": "9"}, "1.2.3"),
        ({"ProductVersion": "", "FileVersion": "1.2.3.4"}, "1.2.3.4"),
        ({"Comments": "none"}, ""),
    ],
)
def test_a_program_has_its_product_version_or_else_its_file_version(texts: dict[str, str], version: str) -> None:
    resource = version_resource(ProductName="Büro", CompanyName="Tiny", **texts)
    findings = found_in(program(resources={(pe_builder.VERSION, 1): resource}))
    assert (findings.version, findings.product_name, findings.publisher) == (version, "Büro", "Tiny")


def test_a_program_that_requires_administrator_has_machine_scope() -> None:
    manifest = b'<requestedExecutionLevel level="requireAdministrator"/>'
    assert found_in(program(resources={(pe_builder.MANIFEST, 1): manifest})).reach is Reach.MACHINE
    assert found_in(program(resources={(pe_builder.MANIFEST, 1): b"asInvoker"})).reach is Reach.UNKNOWN


def test_a_signed_program_names_its_signer() -> None:
    assert found_in(program(signature=signature(), overlay=b"carried along")).signer == TINY
    assert found_in(program(signature=b"no signature")) == Findings(format=Format.EXE, machine=Machine.X64)


def test_a_dll_and_a_dos_program_are_no_installers() -> None:
    assert found_in(program(characteristics=0x2022)) == Findings()
    assert found_in(b"MZ".ljust(60, b"\0") + b"\x40\0\0\0" + b"This program is for DOS.") == Findings()


@each(
    ("suffix", "expected"),
    [(".msix", Format.MSIX), (".appx", Format.APPX), (".appxbundle", Format.APPX), ("", Format.MSIX)],
)
def test_a_package_has_its_identity(suffix: str, expected: Format) -> None:
    assert package(suffix) == Findings(
        format=expected,
        machine=Machine.X64,
        version="1.2.3.0",
        product_name="Tiny",
        publisher="Tiny Works",
        package_family_name="Tiny.App_8wekyb3d8bbwe",
    )


def test_a_publisher_id_equals_the_one_of_windows() -> None:
    assert publisher_id(MICROSOFT) == "8wekyb3d8bbwe"


def test_a_resource_reference_in_a_manifest_is_omitted() -> None:
    assert package(name="ms-resource:AppName").product_name == ""
    assert package(machine="neutral").machine is Machine.UNKNOWN


@each(("second", "expected"), [("x64", Machine.X64), ("arm64", Machine.UNKNOWN)])
def test_a_bundle_with_one_architecture_has_that_machine(second: str, expected: Machine) -> None:
    manifest = BUNDLE_MANIFEST.format(first="x64", second=second)
    findings = found_in(make_zip({"AppxMetadata/AppxBundleManifest.xml": manifest, "a.msix": "PK"}), ".msixbundle")
    assert (findings.format, findings.machine, findings.version) == (Format.MSIX, expected, "2.0.0.0")
    assert findings.package_family_name.startswith("Tiny.App_")


def signed_package() -> bytes:
    manifest = MANIFEST.format(machine="x64", publisher="CN=T", name="Tiny")
    return make_zip({"AppxManifest.xml": manifest, "AppxSignature.p7x": b"PKCX" + signature()})


@each("suffix", [".msix", ".appx"])
def test_a_signed_package_has_its_signer_and_the_digest_of_its_signature(suffix: str) -> None:
    findings = found_in(signed_package(), suffix)
    assert findings.signature_sha256 == hashlib.sha256(b"PKCX" + signature()).hexdigest()
    assert findings.signer == TINY
    assert package().signature_sha256 == ""


def test_a_signed_bundle_has_the_digest_of_its_own_signature_file() -> None:
    content: dict[str, bytes | str] = {
        "AppxMetadata/AppxBundleManifest.xml": BUNDLE_MANIFEST.format(first="x64", second="x64"),
        "a.msix": signed_package(),
        "AppxSignature.p7x": b"PKCX of the bundle",
    }
    digest = hashlib.sha256(b"PKCX of the bundle").hexdigest()
    assert found_in(make_zip(content), ".msixbundle").signature_sha256 == digest


@each("text", ["ab", "AB" * 32, "ab" * 33, "../" * 20])
def test_a_malformed_digest_in_findings_is_ignored(text: str) -> None:
    assert Findings.parse({**Findings().to_document(), "signature_sha256": text}).signature_sha256 == ""


def test_an_archive_lists_installers_with_the_shortest_path_first() -> None:
    findings = found_in(archive(deep__down__setup_exe="MZ", readme_txt="x", b_MSI="", a_exe="MZ", inner_zip=archive()))
    assert findings.format is Format.ZIP
    assert findings.nested == (
        Nested("a.exe", Format.EXE),
        Nested("b.MSI", Format.MSI),
        Nested("deep/down/setup.exe", Format.EXE),
    )


def test_an_archive_lists_at_most_a_hundred_installers() -> None:
    assert len(found_in(make_zip({f"{number}.exe": b"" for number in range(101)})).nested) == 100


def test_an_empty_archive_is_an_archive() -> None:
    assert found_in(make_zip({})) == Findings(format=Format.ZIP)


@each("content", [b"", b"M", b"#!/bin/sh\n", bytes(1000), b"%PDF-1.7", without_stream("Property")], ids=range(6))
def test_a_file_without_an_installer_magic_has_no_findings(content: bytes) -> None:
    assert found_in(content) == Findings()


@each(
    "content",
    [
        MACHINE_MSI[:8],
        MACHINE_MSI[:4096],
        without_stream("_StringPool"),
        program()[:70],
        b"MZ",
        archive(a_exe="MZ")[:40],
        make_zip({"AppxManifest.xml": "no XML"}),
    ],
    ids=["msi-signature", "msi-cut", "msi-without-strings", "program-cut", "two-bytes", "zip-cut", "no-manifest"],
)
def test_a_file_that_contradicts_its_magic_is_damaged(content: bytes) -> None:
    with pytest.raises(Damaged):
        found_in(content)


@each("text", ["a\0b", "a\nb", "\x1b[31m", "x" * 257, "\ud800"])
def test_a_text_with_control_characters_is_omitted(text: str) -> None:
    assert clean_text(text) == ""


def test_findings_are_read_as_they_were_written() -> None:
    for content in (MACHINE_MSI, archive(a_exe="MZ"), program()):
        findings = found_in(content)
        assert Findings.parse(findings.to_document()) == findings


@each(
    "document",
    [
        {"format": "EXE "},
        {"machine": None},
        {"nested": [{"path": "a", "format": "EXE"}] * 101},
        {"nested": None},
        {"signer": {"subject": 1, "issuer": ""}},
        {"version": 1},
    ],
    ids=str,
)
def test_invalid_findings_are_refused(document: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError, AttributeError)):
        Findings.parse({**Findings().to_document(), **document})
