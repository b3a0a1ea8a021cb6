"""Forms with every field of a package and of a version."""

import json
from typing import Any

_AGREEMENT = {"agreement_label": "EULA", "agreement": "You agree\nto it.", "agreement_url": "https://a.example/eula"}
_DOCUMENT = {"document_label": "Guide", "document_url": "http://a.example/guide"}
_ICON = {
    "icon_url": "https://a.example/i.png",
    "icon_file_type": "png",
    "icon_resolution": "64x64",
    "icon_theme": "highContrast",
    "icon_sha256": "0A" * 32,
}
_TEXTS: dict[str, Any] = {
    "publisher_url": "https://a.example/",
    "publisher_support_url": "HTTPS://a.example/help?a=1,2",
    "privacy_url": "http://a.example/privacy",
    "author": "Ada",
    "package_url": "https://a.example/editor",
    "license": "MIT",
    "license_url": "https://a.example/mit",
    "copyright": "(c) Acme",
    "copyright_url": "https://a.example/c",
    "short_description": "Edits text.",
    "tags": ["text", "日本", "a b"],
    "agreements": [_AGREEMENT, {"agreement_url": "https://a.example/more"}],
    "purchase_url": "https://a.example/buy",
    "installation_notes": "Restart\nafterwards.",
    "documentations": [_DOCUMENT],
    "icons": [_ICON],
}
PACKAGE: dict[str, Any] = {
    **_TEXTS,
    "package_locale": "en-GB",
    "moniker": "editor",
    "locales": [
        {
            **_TEXTS,
            "package_locale": "de-DE",
            "publisher": "Akme",
            "package_name": "Redaktor",
            "description": "Viel\nText.",
        },
        {"package_locale": "zh-Hant-TW", "short_description": "編輯文字"},
    ],
}
VERSION: dict[str, Any] = {
    "release_notes": "Faster.\nSmaller.",
    "release_notes_url": "https://a.example/new",
    "locales": [
        {"release_notes": "Schneller.", "release_notes_url": "https://a.example/neu", "package_locale": "de-DE"}
    ],
    "installer_locale": "ko-KR",
    "platform": ["Windows.Desktop", "Windows.Universal"],
    "minimum_os_version": "10.0.17763.65535",
    "install_modes": ["interactive", "silent", "silentWithProgress"],
    "installer_success_codes": [3010, -1, 4294967295],
    "expected_return_codes": [
        {"installer_return_code": 1618, "return_response": "installInProgress"},
        {
            "installer_return_code": -2147483648,
            "return_response": "custom",
            "return_response_url": "https://a.example/1",
        },
    ],
    "commands": ["edit", "editor"],
    "portable_command_alias": ["one", ""],
    "protocols": ["edit", "edits"],
    "file_extensions": ["txt", "md"],
    "capabilities": ["internetClient"],
    "restricted_capabilities": ["runFullTrust"],
    "signature_sha256": "0a" * 32,
    "allowed_markets": [],
    "excluded_markets": ["US", "DE"],
    "installer_aborts_terminal": True,
    "release_date": "2026-02-28",
    "install_location_required": True,
    "require_explicit_upgrade": True,
    "display_install_warnings": True,
    "elevation_requirement": "elevatesSelf",
    "unsupported_os_architectures": ["arm", "arm64"],
    "unsupported_arguments": ["log", "location"],
    "apps_and_features_entries": [
        {
            "display_name": "Editor",
            "publisher": "Acme",
            "display_version": "1.0.0",
            "product_code": "Editor_is1",
            "upgrade_code": "{0A1B2C3D-0000-4000-8000-00000000000F}",
            "installer_type": "INNO",
        }
    ],
    "default_install_location": "%ProgramFiles%\\Editor",
    "installed_files": [
        {
            "relative_file_path": "editor.exe",
            "file_sha256": "0b" * 32,
            "file_type": "launch",
            "invocation_parameter": "/new",
            "display_name": "Editor",
        }
    ],
    "download_command_prohibited": True,
    "repair_behavior": "uninstaller",
    "archive_binaries_depend_on_path": True,
    "desired_state_configuration": {
        "power_shell": [
            {
                "repository_url": "https://a.example/api/v2",
                "module_name": "Acme.Editor-Dsc",
                "resources": [{"name": "EditorSettings"}, {"name": "Editor_Theme-2"}],
            }
        ],
        "dscv3": {"resources": [{"type": "Acme.Editor.Core/Settings"}, {"type": "Acme/Editor"}]},
    },
}
# The file types that allow all fields of VERSION.
PORTABLE = {"file_type": "ZIP", "file_type_nested": "PORTABLE"}


def form_of(fields: dict[str, Any]) -> dict[str, str | list[str]]:
    """A form with these fields: objects and lists of objects as JSON, other lists as repeated fields."""
    return {name: _encode(value) for name, value in fields.items()}


def _encode(value: Any) -> str | list[str]:
    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(item, dict) for item in value)):
        return json.dumps(value)
    if isinstance(value, list):
        return [str(item) for item in value]
    return str(int(value)) if isinstance(value, bool) else str(value)
