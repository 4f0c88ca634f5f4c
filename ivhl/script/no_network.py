"""Run a command without a network but its own loopback: ``python no_network.py COMMAND...``.

Where Linux does not allow that to this user, the command runs with the network, and the exit status
``NOT_ALLOWED`` of ``python no_network.py`` without a command says so beforehand.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
from typing import NoReturn

NOT_ALLOWED = 3
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def main(command: list[str]) -> NoReturn:
    """Run the command in place of this process."""
    alone = leave_network()
    if not command:
        sys.exit(0 if alone else NOT_ALLOWED)
    os.execv(command[0], command)  # noqa: S606  (no shell is wanted)


def leave_network() -> bool:
    """Give this process a network of its own, with a loopback; return whether that is allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "unshare"):
        return False
    if libc.unshare(_CLONE_NEWNET):
        user, group = os.getuid(), os.getgid()
        if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET):
            return False
        # The same numbers as outside, so that files belong to the same user.
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123
                file.write(text)
    # torch.distributed on one machine talks to itself.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack("16xH14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))
    return True


if __name__ == "__main__":
    main(sys.argv[1:])
