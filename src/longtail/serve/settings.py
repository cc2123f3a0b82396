"""Settings of a server: its models, its address, and the limits on requests."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from longtail.errors import ParameterError

LOOPBACK = ("127.0.0.1", "::1", "localhost")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class ServerLimits:
    """Limits on requests; what exceeds one is refused with an error that names it."""

    body_bytes: int = 4 << 20  # per request
    held_bytes: int = 512 << 20  # of all request bodies in memory, per process; beyond it the status is 429
    head_bytes: int = 16 << 10  # of request line and headers
    headers: int = 100  # per request
    rows: int = 1000  # texts or rows of features per request
    text_characters: int = 1_000_000  # per text
    row_features: int = 100_000  # per row of features
    k: int = 1000  # labels per row
    answer_labels: int = 50_000  # rows times k per request
    filter_labels: int = 10_000  # in `only` and in `exclude`
    explained_labels: int = 100  # per request, over all rows
    explained_characters: int = 2_000_000  # of all texts, times k, in a request with explanations
    explained_spans: int = 1000  # positions in the text per explained label
    queued_rows: int = 1024  # in the queue for predictions; beyond it the status is 429
    waiting_questions: int = 32  # explanations and label requests in their queue; beyond it the status is 429
    requests: int = 512  # in progress, per process; beyond it the status is 429
    connections: int = 1024  # open, per process; further ones are closed with status 503
    deadline: float = 10.0  # seconds from the complete request to its response; after that the status is 504
    head_seconds: float = 10.0  # for a client to send the head
    body_seconds: float = 20.0  # for a client to send the body
    write_seconds: float = 30.0  # for a client to read the response
    idle_seconds: float = 75.0  # that a connection may stay open without a request
    rest_bytes: int = 64 << 20  # of a refused body, read and discarded so that the client can read the response
    rest_seconds: float = 5.0  # for that
    drain_seconds: float = 30.0  # after a signal to stop, for requests in progress

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 2**40:
                raise ParameterError(one.name, value, "must be a number above 0")


@dataclass(frozen=True)
class ServerSettings:
    """Settings of a server.

    Parameters
    ----------
    models : dict of str to str
        Directory of each model, by the name under which it is served.
    host : str
    port : int
        0 for any free port.
    workers : int
        Processes.
    threads : int
        Threads per process for predictions.
    batch_rows : int
        Maximum rows per batch.
    key_file : str, optional
        File with API keys, one per line.
    allowed_hosts : list of str
        Accepted host names besides those of loopback, if the server listens on loopback only.
    limits : ServerLimits

    Examples
    --------
    >>> settings = ServerSettings({"tags": "models/tags"}, workers=2)
    >>> ServerSettings.from_json(settings.to_json()) == settings
    True
    """

    models: dict[str, str]
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    threads: int = 2
    batch_rows: int = 64
    key_file: str | None = None
    allowed_hosts: list[str] = field(default_factory=list)
    limits: ServerLimits = field(default_factory=ServerLimits)

    @property
    def hosts(self) -> frozenset[str] | None:
        """Accepted host names; None for any, if the server is reachable from other machines."""
        if self.host not in LOOPBACK:
            return None
        return frozenset([*LOOPBACK, "[::1]", *(host.lower() for host in self.allowed_hosts)])

    def to_json(self) -> str:
        """Return the settings as JSON, for a worker process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return settings from the JSON of `to_json`."""
        values: dict[str, Any] = json.loads(text)
        return cls(**{**values, "limits": ServerLimits(**values["limits"])})


def parse_models(given: Sequence[str]) -> dict[str, str]:
    """Parse models given as ``NAME=DIR``, or as a directory that also gives the name.

    Examples
    --------
    >>> parse_models(["models/tags", "law=/srv/eurlex"])
    {'tags': 'models/tags', 'law': '/srv/eurlex'}
    """
    models: dict[str, str] = {}
    for one in given:
        name, equals, directory = one.partition("=")
        if not equals or "/" in name:
            name, directory = Path(one).resolve().name, one
        if not _NAME.fullmatch(name):
            raise ParameterError(
                "MODEL",
                one,
                "must have a name of up to 64 letters, digits, dots, hyphens and underscores: give NAME=DIR",
            )
        if name in models:
            raise ParameterError("MODEL", one, f"must have a unique name, and {name} is given twice: use NAME=DIR")
        models[name] = directory
    return models
