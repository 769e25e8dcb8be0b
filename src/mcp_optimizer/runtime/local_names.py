"""Whether names under `.localhost` lead to this gateway alone.

A browser takes such a name for ::1 and for 127.0.0.1, and tries one after the other. A gateway listens at one of them:
whoever listens at the other, at the same port, gets what the browser sends, the cookie of a sign-in included. So the
gateway binds that one too. It does not listen there: connections are refused, and the browser tries the next.
"""

from __future__ import annotations

import errno
import logging
import socket
import sys

logger = logging.getLogger(__name__)

_ADDRESSES = ((socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1"))
_NOBODY_CAN = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT)
"""This machine does not have such addresses."""


class LocalNames:
    """What is bound so that nobody else listens there."""

    def __init__(self) -> None:
        self._bound: list[socket.socket] = []
        self.taken_at = ""
        """Where another program was first, such as [::1]:8765."""

    def bind_beside(self, listening: socket.socket, *, is_one_of_many: bool = False) -> None:
        """`is_one_of_many`: other workers bind the same."""
        host, port, *_ = listening.getsockname()
        for family, address in _ADDRESSES:
            if address == host:
                continue
            try:
                self._bound.append(_bound(family, address, port, is_one_of_many=is_one_of_many))
            except OSError as error:
                if error.errno not in _NOBODY_CAN:
                    self.taken_at = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
                    logger.warning(
                        "Another program listens at %s: nobody signs in to the dashboard under a name.", self.taken_at
                    )

    def close(self) -> None:
        """Leave the addresses to others."""
        while self._bound:
            self._bound.pop().close()


def _bound(family: socket.AddressFamily, address: str, port: int, *, is_one_of_many: bool) -> socket.socket:
    bound = socket.socket(family)
    try:
        if is_one_of_many and sys.platform != "win32":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((address, port))
    except OSError:
        bound.close()
        raise
    return bound
