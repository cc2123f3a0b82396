"""The socket that a server listens on, opened first so that errors are reported at once."""

from __future__ import annotations

import errno
import socket

from longtail.errors import InputError

BACKLOG = 1024
"""Maximum connections waiting to be accepted."""


def bind(host: str, port: int) -> socket.socket:
    """Open the socket that the server listens on."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except OSError:
        raise _no_address(host) from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise _no_address(host) from None
        raise InputError(f"Can't listen on {host}, port {port}: {error.strerror}. Give another --port.") from None
    return listening


def _no_address(host: str) -> InputError:
    return InputError(
        f"{host} is not an address of this machine: give another --host, 127.0.0.1 for this machine only or "
        "0.0.0.0 for all of its addresses."
    )


def address_of(listening: socket.socket) -> str:
    """Return the URL of a socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
