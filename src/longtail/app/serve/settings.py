"""What a server is told: which models, where it listens, and the limits of everything that comes in."""

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
class Limits:
    """How much of anything is taken; what is beyond is refused with a sentence that names the limit.

    Parameters
    ----------
    body_bytes : int
        Of a request's body.
    held_bytes : int
        Of all bodies that one process has in memory; beyond, the answer is 429.
    head_bytes, headers : int
        Of a request's first line and headers together, and their number.
    rows : int
        Texts or rows of features in one request.
    text_characters : int
        In one text.
    row_features : int
        In one row of features.
    k : int
        Labels a row.
    answer_labels : int
        Rows times k of one request.
    filter_labels : int
        In `only` and in `exclude`.
    explained_labels : int
        Labels explained in one request, over all of its rows.
    explained_characters, explained_spans : int
        Characters of all texts times k, where labels are explained; and places in a text that are given for a label.
    queued_rows : int
        Rows that wait for a prediction; beyond, the answer is 429.
    waiting_questions : int
        Explanations and questions about labels that wait; beyond, the answer is 429.
    requests : int
        Requests in progress in one process; beyond, the answer is 429.
    connections : int
        Open connections of one process; beyond, they are answered with 503 and closed.
    deadline : float
        Seconds from the whole request to its answer; after that the answer is 504.
    head_seconds, body_seconds, write_seconds, idle_seconds : float
        Within which a client must have sent the head, and the body, and taken the answer; and how long a connection
        may stay open without a request.
    rest_bytes, rest_seconds : int, float
        Of a body that was refused before it was whole: what is read and thrown away, so that the client gets to read
        the answer.
    drain_seconds : float
        After a signal to stop, within which what was accepted must be finished.
    """

    body_bytes: int = 4 << 20
    held_bytes: int = 512 << 20
    head_bytes: int = 16 << 10
    headers: int = 100
    rows: int = 1000
    text_characters: int = 1_000_000
    row_features: int = 100_000
    k: int = 1000
    answer_labels: int = 50_000
    filter_labels: int = 10_000
    explained_labels: int = 100
    explained_characters: int = 2_000_000
    explained_spans: int = 1000
    queued_rows: int = 1024
    waiting_questions: int = 32
    requests: int = 512
    connections: int = 1024
    deadline: float = 10.0
    head_seconds: float = 10.0
    body_seconds: float = 20.0
    write_seconds: float = 30.0
    idle_seconds: float = 75.0
    rest_bytes: int = 64 << 20
    rest_seconds: float = 5.0
    drain_seconds: float = 30.0

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 2**40:
                raise ParameterError(one.name, value, "must be a number above 0")


@dataclass(frozen=True)
class Settings:
    """All that one process of the server needs to know.

    Parameters
    ----------
    models : dict of str to str
        Directory of each model, by the name under which it is served.
    host : str
    port : int
        0 for any free one.
    workers : int
        Processes.
    threads : int
        Threads of each process that predict.
    batch_rows : int
        Rows that are predicted together at most.
    key_file : str, optional
        File with API keys, one a line.
    allowed_hosts : list of str
        Names besides those of loopback that a request may ask for, where the server listens on loopback alone.
    limits : Limits

    Examples
    --------
    >>> settings = Settings({"tags": "models/tags"}, workers=2)
    >>> Settings.from_json(settings.to_json()) == settings
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
    limits: Limits = field(default_factory=Limits)

    @property
    def hosts(self) -> frozenset[str] | None:
        """Names that a request may ask for; None for any, where others than this machine may ask."""
        if self.host not in LOOPBACK:
            return None
        return frozenset([*LOOPBACK, "[::1]", *(host.lower() for host in self.allowed_hosts)])

    def to_json(self) -> str:
        """Write it down for a process of its own."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` has written."""
        values: dict[str, Any] = json.loads(text)
        return cls(**{**values, "limits": Limits(**values["limits"])})


def parse_models(given: Sequence[str]) -> dict[str, str]:
    """Read models as they are typed: ``NAME=DIR``, or a directory that gives the name.

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
            raise ParameterError("MODEL", one, f"must have a name of its own, and {name} stands twice: give NAME=DIR")
        models[name] = directory
    return models
