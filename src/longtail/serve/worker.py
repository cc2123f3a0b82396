"""A worker process of a server, started by the supervisor."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

from longtail.errors import LongtailError

if TYPE_CHECKING:
    from longtail.serve.service import Service

logger = logging.getLogger("longtail.serve")


class Channel:
    """The worker's end of the connection to the supervisor."""

    def __init__(self, connection: socket.socket, service: Service) -> None:
        self._connection = connection
        self._service = service
        self._writer: asyncio.StreamWriter | None = None
        self._asked: dict[int, asyncio.Future[int]] = {}
        self._numbers = 0

    def open(self) -> None:
        """Connect the service with the supervisor, from its start."""
        self._service.broadcast = self.broadcast
        self._service.on_ready = self._say_ready
        self._service.background.append(self._listen)

    async def broadcast(self, name: str) -> int:
        """Have the other workers reload a model, and return how many did."""
        if self._writer is None:
            return 0
        self._numbers += 1
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asked[self._numbers] = answer
        self._say({"reload": name, "number": self._numbers})
        return await answer

    async def _listen(self) -> None:
        reader, self._writer = await asyncio.open_connection(sock=self._connection)
        if self._service.is_ready:
            self._say_ready()
        while line := await reader.readline():
            message = json.loads(line)
            if "reload" in message:
                done = True
                try:
                    await self._service.reload(message["reload"], broadcast=False)
                except Exception:
                    done = False
                self._say({"reloaded": message["number"], "done": done})
            elif "broadcast" in message:
                answer = self._asked.pop(message["broadcast"])
                if not answer.done():
                    answer.set_result(message["workers"])
        logger.error("lost the connection to the supervisor: stopping")
        self._service.on_failure()

    def _say_ready(self) -> None:
        self._say({"ready": True})

    def _say(self, message: dict[str, object]) -> None:
        if self._writer is not None:
            self._writer.write(json.dumps(message).encode() + b"\n")


def main() -> None:
    """Read the settings from the supervisor and serve."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there are models to reload
    from longtail.serve.server import leave_threads, log_to_standard_error, serve
    from longtail.serve.settings import ServerSettings
    from longtail.serve.supervisor import USER_MISTAKE

    log_to_standard_error()
    listening, connection = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    line = b""
    while not line.endswith(b"\n"):
        byte = connection.recv(1)  # byte by byte: later lines are read elsewhere
        if not byte:
            return
        line += byte
    settings = ServerSettings.from_json(json.loads(line)["settings"])
    try:
        serve(settings, listening, lambda service: Channel(connection, service).open())
    except LongtailError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.stderr.flush()
        os._exit(USER_MISTAKE)
    leave_threads()


if __name__ == "__main__":
    main()
