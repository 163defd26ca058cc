"""`python alone.py COMMAND...`: run it where there is no network but the loopback, if this user may
make such a place.

Ray takes the first address of the host that it finds, and nothing of the tests has any business
outside it.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS, UP_LOOPBACK_RUNNING = 0x8914, 0x49


def main() -> None:
    """Enter a network namespace, switch its loopback on, become the command."""
    if ctypes.CDLL(None).unshare(CLONE_NEWNET) == 0:
        with socket.socket() as any_socket:
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", UP_LOOPBACK_RUNNING))
    else:
        print("no network namespace can be made; the tests run in this host's", file=sys.stderr)
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
