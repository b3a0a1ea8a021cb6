#!/usr/bin/env python3
"""Run Chromium without notifications of network interfaces.

Chromium aborts requests with ERR_NETWORK_CHANGED when an interface is added or removed, for example by a container. No
option turns that off. Chromium gets the notifications from a netlink socket, and works without one.
"""

import ctypes
import os
import platform
import struct
import sys

SOCKET = {"x86_64": 41, "aarch64": 198}  # the number of the system call
AF_NETLINK, EAFNOSUPPORT = 16, 97
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
FAIL, ALLOW = 0x50000 | EAFNOSUPPORT, 0x7FFF0000
NUMBER, FIRST_ARGUMENT = 0, 16  # offsets in `struct seccomp_data`


class Program(ctypes.Structure):
    """The kernel's `struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def refuse_netlink() -> None:
    """Make `socket(AF_NETLINK, ...)` fail in this process and its children."""
    steps = (
        (LOAD, 0, 0, NUMBER),
        (JUMP_IF_EQUAL, 0, 3, SOCKET[platform.machine()]),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (JUMP_IF_EQUAL, 0, 1, AF_NETLINK),
        (RETURN, 0, 0, FAIL),
        (RETURN, 0, 0, ALLOW),
    )
    program = Program(len(steps), b"".join(struct.pack("HBBI", *step) for step in steps))
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0)


if __name__ == "__main__":
    if platform.machine() in SOCKET:
        refuse_netlink()
    os.execv("/usr/bin/chromium", ["chromium", *sys.argv[1:]])  # noqa: S606
