"""The simulated winget client refuses the same manifests as the real client."""

from typing import Any

import pytest

from tests.support.winget.rules import INSTALLER_RULES, AnswerRejected, check_manifest

URL = "https://example.com/x"
GOOD: dict[str, Any] = {
    "Architecture": "x64",
    "InstallerType": "msi",
    "InstallerUrl": URL,
    "InstallerSha256": "ab" * 32,
}
WRONG: dict[str, dict[str, Any]] = {
    "an unknown type": {"InstallerType": "rpm"},
    "an unknown architecture": {"Architecture": "mips"},
    "no address": {"InstallerUrl": "ftp://example.com"},
    "no digest": {"InstallerSha256": "ab"},
    "an unknown upgrade behaviour": {"UpgradeBehavior": "maybe"},
    "a product code on a packaged app": {"InstallerType": "msix", "ProductCode": "x"},
    "entries of a type without entries": {"InstallerType": "font", "AppsAndFeaturesEntries": [{"DisplayName": "x"}]},
    "an approximate version": {"AppsAndFeaturesEntries": [{"DisplayVersion": "> 1"}]},
    "a family name of a type without one": {},
    "a portable program with several commands or entries": {"InstallerType": "portable", "Commands": ["a", "b"]},
    "an invalid locale": {"InstallerLocale": "en_US"},
    "allowed and excluded markets": {"Markets": {"AllowedMarkets": ["US"], "ExcludedMarkets": ["DE"]}},
    "a repeated return code": {
        "InstallerSuccessCodes": [1],
        "ExpectedReturnCodes": [{"InstallerReturnCode": 1, "ReturnResponse": "custom"}],
    },
    "an archive with no or several installers": {"InstallerType": "zip", "NestedInstallerType": "msi"},
    "a path outside the archive": {
        "InstallerType": "zip",
        "NestedInstallerType": "msi",
        "NestedInstallerFiles": [{"RelativeFilePath": r"..\a.msi"}],
    },
    "a repeated path or alias": {
        "InstallerType": "zip",
        "NestedInstallerType": "portable",
        "NestedInstallerFiles": [{"RelativeFilePath": "a.exe"}, {"RelativeFilePath": "A.exe"}],
    },
    "a configuration without resources": {"DesiredStateConfiguration": {"PowerShell": [{"ModuleName": "Acme"}]}},
    "an invalid Windows feature": {"Dependencies": {"WindowsFeatures": ["NetFx3", "Net Fx 4"]}},
}


def test_one_error_makes_a_whole_manifest_invalid() -> None:
    assert WRONG.keys() == INSTALLER_RULES.keys()
    locale = {"PackageLocale": "en-US", "Publisher": "A", "PackageName": "B", "ShortDescription": "C", "License": "D"}

    def of(*installers: dict[str, Any], **version: Any) -> dict[str, Any]:
        fields = {"PackageVersion": "1.0", "DefaultLocale": locale, "Installers": list(installers), **version}
        return {"PackageIdentifier": "A.B", "Versions": [fields]}

    check_manifest(of(GOOD), 28)
    for reason, change in WRONG.items():
        if change:
            with pytest.raises(AnswerRejected, match=reason):
                check_manifest(of({**GOOD, **change}), 28)
    with pytest.raises(AnswerRejected, match="a family name"):
        check_manifest(of({**GOOD, "PackageFamilyName": "x"}), 1)
    for wrong in (
        of(GOOD, GOOD),
        of({**GOOD, "InstallerType": "msix"}, {**GOOD, "InstallerType": "appx"}),
        of(),
        of(GOOD, Channel="stable"),
        of(GOOD, PackageVersion="> 1"),
        of({**GOOD, "x": 1}),
    ):
        with pytest.raises(AnswerRejected):
            check_manifest(wrong, 28)
    with pytest.raises(AnswerRejected, match="empty"):
        check_manifest(of({**GOOD, "Scope": ""}), 28)
