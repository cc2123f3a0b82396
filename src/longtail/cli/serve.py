"""`longtail serve`: models behind an HTTP API and a web page."""

from __future__ import annotations

import signal
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.cli.console import guarded, note, step
from longtail.errors import MissingExtraError, ParameterError

if TYPE_CHECKING:
    from socket import socket

    from longtail.serve.settings import ServerSettings

_NEEDED = ("fastapi", "uvicorn", "httptools", "prometheus_client")


@guarded
def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL",
            help="Directories of models, or NAME=DIR to serve a model under another name than its directory's.",
            show_default=False,
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free one.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Processes, which share the models.")] = 1,
    threads: Annotated[int, typer.Option(min=1, max=64, help="Prediction threads per process.")] = 2,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with API keys of at least 8 characters, one per line; LONGTAIL_API_KEY can hold one too.",
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Host name to accept besides localhost, such as a proxy's; can be repeated."),
    ] = None,
    max_body: Annotated[int, typer.Option(min=1, metavar="BYTES", help="Maximum size of a request body.")] = 4 << 20,
    max_rows: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum texts or rows per request.")] = 1000,
    max_queue: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum queued rows, else status 429.")] = 1024,
    deadline: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="Time limit of a request.")] = 10.0,
) -> None:
    """Serve models over HTTP, with a web page to try them.

    POST /v1/predict predicts; / is the page; /openapi.json describes the API. SIGHUP reloads all models.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise MissingExtraError("longtail serve", "serve")
    with step("starting the server"):
        from longtail.serve.settings import ServerLimits, ServerSettings, parse_models

        if max_rows > max_queue:
            raise ParameterError("--max-queue", max_queue, f"must be at least --max-rows, {max_rows}")
        limits = ServerLimits(body_bytes=max_body, rows=max_rows, queued_rows=max_queue, deadline=deadline)
        settings = ServerSettings(
            parse_models(models), host=host, port=port, workers=workers, threads=threads,
            key_file=None if api_key_file is None else str(api_key_file), allowed_hosts=allowed_host or [],
            limits=limits,
        )  # fmt: skip
        listening = _listening(settings)
        from longtail.serve.server import leave_threads, log_to_standard_error

    log_to_standard_error()
    if workers > 1:
        from longtail.serve.supervisor import Supervisor

        Supervisor(settings, listening).run()
    else:
        from longtail.runtime.progress import show_progress
        from longtail.serve.server import serve as serve_here

        with show_progress(False):
            serve_here(settings, listening)
    note("Stopped.")
    leave_threads()


def _listening(settings: ServerSettings) -> socket:
    """Check the keys and the models, and return the socket that accepts connections."""
    from longtail.serve.keys import read_keys
    from longtail.serve.settings import LOOPBACK
    from longtail.serve.sockets import address_of, bind
    from longtail.store.manifest import model_checksum

    keys = read_keys(settings.key_file)
    for directory in settings.models.values():
        model_checksum(Path(directory))
    if settings.host not in LOOPBACK and not keys:
        note(f"Anyone who can reach {settings.host} can use this server: --api-key-file requires a key.")
    listening = bind(settings.host, settings.port)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the models are loaded
    note(f"Listening on {address_of(listening)}, Ctrl-C stops.")
    return listening
