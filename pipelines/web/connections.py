"""Connections to a local page: few at a time, each with a deadline, which uvicorn has no settings for."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 400  # connections; a process may often open 1,024 files
RECEIVING = 20.0  # seconds in which a request has to arrive, head and body
LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Connection(H11Protocol):
    """A connection whose request arrives in time, or it is closed; of too many, the one that waits longest goes."""

    deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.waiting: dict[Connection, None] = vars(self.server_state).setdefault("waiting", {})
        self._wait()
        if len(self.connections) > MOST:
            next(iter(self.waiting))._late()

    def data_received(self, data: bytes) -> None:
        """Read on; the deadline ends with the request."""
        if self.deadline is None and self.conn.their_state in (h11.IDLE, h11.DONE):
            self._wait()
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY) or self.transport.is_closing():
            self._arrived()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._arrived()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self.waiting[self] = None  # of all connections, in the order in which they began to wait
        self.deadline = self.loop.call_later(RECEIVING, self._late)

    def _arrived(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None
            del self.waiting[self]

    def _late(self) -> None:
        self._arrived()
        if self.conn.our_state is h11.IDLE:
            self.transport.write(LATE)
        self.transport.close()


def server_of(app: ASGIApp) -> uvicorn.Server:
    """The server of an app: plain HTTP, no socket that stays open, no header that says what it is."""
    return uvicorn.Server(
        uvicorn.Config(app, http=Connection, ws="none", log_level="warning", server_header=False, access_log=False)
    )
