"""Installer files: reading in a thread with a check for changes, and installers from the options of the command."""

import asyncio
import errno
import hashlib
import os
import re
import stat
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from catalog_service.model.enumerations import Architecture, FileType, Locale, Scope, Switch
from common.settings import BadSetting
from deploy.publish.model import FileChanged, FileUnusable, Installer
from upload_service.model import FONTS

BLOCK = 4 << 20  # bytes
_TYPES = {
    ".exe": FileType.EXE,
    ".msi": FileType.MSI,
    **dict.fromkeys((".msix", ".msixbundle"), FileType.MSIX),
    **dict.fromkeys((".appx", ".appxbundle"), FileType.APPX),
    ".zip": FileType.ZIP,
    **dict.fromkeys(FONTS, FileType.FONT),
}
# The order matters: `x86_64` is not x86, and some build tools write Windows on x64 as `win32-x64`.
_ARCHITECTURES = (
    (Architecture.ARM64, r"arm64|aarch64"),
    (Architecture.X64, r"x64|amd64|x86[_-]64|win64|64[_-]?bit"),
    (Architecture.X86, r"x86|i[3-6]86|ia32|win32|32[_-]?bit"),
    (Architecture.ARM, r"arm"),
)
Value = TypeVar("Value")


class LocalFile:
    """An open file. Every read fails once the file has changed."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._opened = os.fstat(descriptor)
        self.size = self._opened.st_size  # bytes

    async def sha256(self, progress: Callable[[int], None]) -> str:
        """The hexadecimal digest; `progress` is called with the number of bytes read. Raises as `read` does."""
        digest = hashlib.sha256()
        for start in range(0, self.size, BLOCK):
            block = await self.read(start, min(BLOCK, self.size - start))
            await asyncio.to_thread(digest.update, block)
            progress(start + len(block))
        return digest.hexdigest()

    async def read(self, start: int, length: int) -> bytes:
        """Read bytes that lie within the file. Raises FileChanged, and FileUnusable for an error of the disk."""
        return await asyncio.to_thread(self._read, start, length)

    def _read(self, start: int, length: int) -> bytes:
        try:
            content = os.pread(self._descriptor, length, start)
            now = os.fstat(self._descriptor)
        except OSError as error:
            raise FileUnusable(f"{self.path} cannot be read: {error.strerror}.") from None
        is_same = (now.st_size, now.st_mtime_ns) == (self._opened.st_size, self._opened.st_mtime_ns)
        if not is_same or len(content) != length:
            raise FileChanged(f"{self.path} changed while it was sent; run the command again.")
        return content


@asynccontextmanager
async def open_file(path: Path) -> AsyncIterator[LocalFile]:
    """Open a file for the block. Raises FileUnusable for a file that is empty or cannot be opened."""
    try:
        descriptor = open_regular(path, os.O_RDONLY)
    except OSError as error:
        raise FileUnusable(f"{path} cannot be read: {error.strerror}.") from None
    try:
        file = LocalFile(path, descriptor)
        if not file.size:
            raise FileUnusable(f"{path} is empty.")
        yield file
    finally:
        os.close(descriptor)


def open_regular(path: str | Path, flags: int) -> int:
    """Open a regular file without blocking; usable as the opener of `open`. Raises OSError, also for a pipe."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "is no regular file", str(path))


def file_type_of(path: Path) -> FileType | None:
    """The type that the suffix stands for."""
    return _TYPES.get(path.suffix.lower())


def suffix_of(path: Path) -> str:
    """The suffix if an installer has it, else ""."""
    return path.suffix.lower() if file_type_of(path) else ""


def architecture_of(path: Path) -> Architecture:
    """The architecture that the file's name contains as a separate word; x64 if there is none."""
    for architecture, words in _ARCHITECTURES:
        if re.search(rf"(?<![a-z0-9])({words})(?![a-z0-9])", path.name.lower()):
            return architecture
    return Architecture.X64


@dataclass(frozen=True)
class InstallerOptions:
    """The first four have one value for all files, or one for each file in order; empty where the file's name decides.

    `more` has fields of the creation form under the interface's names.
    """

    versions: Sequence[str]
    architectures: Sequence[Architecture] = ()
    types: Sequence[FileType] = ()
    product_codes: Sequence[str] = ()
    scope: Scope = Scope.MACHINE
    locale: Locale = Locale.EN_US
    channel: str = "stable"
    nested_type: FileType | None = None
    more: Sequence[tuple[str, str]] = ()


def installers(files: Sequence[Path], package_id: str, options: InstallerOptions) -> list[Installer]:
    """Make an installer of each file.

    Raises BadSetting: a type is unknown, two files have the same version, or the number of values is wrong.
    """
    versions = _one_per_file("--version", options.versions, files)
    architectures = _one_per_file("--architecture", options.architectures, files)
    types = _one_per_file("--type", options.types, files)
    codes = _one_per_file("--product-code", options.product_codes, files)
    result: list[Installer] = []
    for path, version, architecture, option, code in zip(files, versions, architectures, types, codes, strict=True):
        file_type = option or file_type_of(path)
        if not version:
            raise BadSetting("--version: must not be empty")
        if file_type is None:
            raise BadSetting(f"--type: the suffix of {path.name} is not one of an installer; give the type")
        installer = Installer(
            path=path,
            package_id=package_id,
            version=version,
            architecture=architecture or architecture_of(path),
            file_type=file_type,
            scope=options.scope,
            locale=options.locale,
            channel=options.channel,
            nested_type=options.nested_type or "",
            more=(*options.more, *((("productcode", code),) if code else ())),
        )
        if twin := next((other for other in result if other.key == installer.key), None):
            raise BadSetting(
                f"{twin.path.name} and {path.name} would be the same version, {version} for {installer.architecture}; "
                "give --version or --architecture once for each file"
            )
        result.append(installer)
    return result


def switches(options: Sequence[str]) -> list[tuple[str, str]]:
    """The form fields of switches like `silent=/S`. Raises BadSetting."""
    names = {name.casefold(): name for name in Switch}
    fields = []
    for text in options:
        option, equals, value = text.partition("=")
        name = names.get(option.casefold().replace("-", ""))
        if not equals or name is None:
            raise BadSetting(f"--switch: {text}: must be NAME=VALUE, with one of {', '.join(Switch)}")
        fields.append((f"switch_{name}", value))
    return fields


def package_dependencies(options: Sequence[str]) -> list[tuple[str, str]]:
    """The form fields of packages like `Microsoft.VCRedist` or `Microsoft.VCRedist=14.40`."""
    pairs = [text.partition("=") for text in options]
    return [
        field for name, _, least in pairs for field in (("dep_pkg_identifier", name), ("dep_pkg_min_version", least))
    ]


def _one_per_file(option: str, values: Sequence[Value], files: Sequence[Path]) -> list[Value | None]:
    """A value for each file. Raises BadSetting."""
    if not values:
        return [None] * len(files)
    if len(values) not in {1, len(files)}:
        raise BadSetting(f"{option}: give it once, or once for each of the {len(files)} files")
    return [*values] * len(files) if len(values) == 1 else [*values]
