"""Ports on 127.0.0.1 for what the lab starts."""

from __future__ import annotations

import contextlib
import errno
import random
import socket

# Below the ports that Linux and macOS give to outgoing connections, which could take a stopped broker's port.
RANGE = range(20_000, 32_768)


class PortTaken(RuntimeError):
    """No process can listen on the port now."""


def free_ports(count: int) -> list[int]:
    """Return `count` distinct ports that were free a moment ago. Raises PortTaken if it finds fewer."""
    found: list[int] = []
    for port in random.SystemRandom().sample(RANGE, 1000):
        with contextlib.suppress(PortTaken):
            require_free(port)
            found.append(port)
        if len(found) == count:
            return found
    raise PortTaken(f"no free port was found on 127.0.0.1 between {RANGE.start} and {RANGE.stop - 1}")


def require_free(port: int) -> None:
    """Raise PortTaken unless a process can listen on the port. Connections in TIME_WAIT do not matter."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise PortTaken(f"port {port} on 127.0.0.1 cannot be used: {error.strerror}") from error
            raise PortTaken(
                f"port {port} on 127.0.0.1 is in use by another program; choose another port or end that program"
            ) from error
