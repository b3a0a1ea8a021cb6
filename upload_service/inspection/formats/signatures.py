"""The first bytes of what can be an installer; of any other file there is nothing to find."""

PROGRAM = b"MZ"
MSI = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # of an OLE file
ARCHIVE = (b"PK\x03\x04", b"PK\x05\x06")  # the second of one without a file
LONGEST = 8  # bytes


def may_be_an_installer(head: bytes) -> bool:
    """Whether a file that begins so is worth a process to read it."""
    return head.startswith((PROGRAM, MSI, *ARCHIVE))
