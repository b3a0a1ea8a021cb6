"""What the name of an installer's file tells about it."""

import re
from pathlib import Path

from catalog_service.model.enumerations import Architecture, FileType

_TYPES = {
    ".exe": FileType.EXE,
    ".msi": FileType.MSI,
    ".msix": FileType.MSIX,
    ".msixbundle": FileType.MSIX,
    ".appx": FileType.APPX,
    ".appxbundle": FileType.APPX,
    ".zip": FileType.ZIP,
    **dict.fromkeys((".ttf", ".otf", ".ttc", ".otc", ".fnt"), FileType.FONT),
}
# In this order: `x86_64` is not x86, and `win32-x64` is how some build tools say Windows on x64.
_ARCHITECTURES = (
    (Architecture.ARM64, r"arm64|aarch64"),
    (Architecture.X64, r"x64|amd64|x86[_-]64|win64|64[_-]?bit"),
    (Architecture.X86, r"x86|i[3-6]86|ia32|win32|32[_-]?bit"),
    (Architecture.ARM, r"arm"),
)


def file_type(path: Path) -> FileType | None:
    """The type that the file's suffix stands for; None where it stands for none."""
    return _TYPES.get(path.suffix.lower())


def suffix(path: Path) -> str:
    """The suffix where it is one of an installer, else ""."""
    return path.suffix.lower() if file_type(path) else ""


def architecture(path: Path) -> Architecture:
    """The architecture that the file's name holds as a word of its own; x64 where it holds none."""
    for found, words in _ARCHITECTURES:
        if re.search(rf"(?<![a-z0-9])({words})(?![a-z0-9])", path.name.lower()):
            return found
    return Architecture.X64
