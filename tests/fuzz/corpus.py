"""The corpus of each target: a ZIP archive of inputs."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

CORPUS = Path(__file__).parent / "corpus"


def read_corpus(target: str) -> Mapping[str, bytes]:
    """The inputs of a target, by their names."""
    with ZipFile(CORPUS / f"{target}.zip") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_corpus(target: str, inputs: Iterable[bytes]) -> None:
    """Replace the inputs of a target, and name each by its digest. The same inputs give the same archive."""
    named = {hashlib.sha256(content).hexdigest(): content for content in inputs}
    with ZipFile(CORPUS / f"{target}.zip", "w") as archive:
        for name, content in sorted(named.items()):
            archive.writestr(ZipInfo(name), content, ZIP_DEFLATED)
