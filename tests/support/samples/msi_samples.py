"""Small real MSI files.

They were built with wixl 0.101 of Debian's msitools. `MACHINE_MSI` is for x64 and all users. It was signed with
osslsigncode 2.9, a deleted key and an untrusted certificate. `USER_MSI` is for x86 and one user. It has texts in code
page 1252, and a property of 70,000 characters.
"""

import lzma
from pathlib import Path

_FOLDER = Path(__file__).parent
MACHINE_MSI, USER_MSI = (lzma.decompress((_FOLDER / f"{name}.msi.xz").read_bytes()) for name in ("machine", "user"))
