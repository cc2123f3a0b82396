"""`longtail serve`: models behind an HTTP API, with a page."""

from __future__ import annotations

import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from longtail.app.cli.console import guarded, note, step
from longtail.errors import MissingExtraError, ParameterError

_NEEDED = ("fastapi", "uvicorn", "httptools", "prometheus_client")


@guarded
def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="Directories of models, or NAME=DIR to serve one under another name than its directory's.",
            show_default=False,
        ),
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 for all of this machine, so that others reach it.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any that is free.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Processes; models are shared between them.")] = 1,
    threads: Annotated[int, typer.Option(min=1, max=64, help="Threads of each process that predict.")] = 2,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with API keys of at least 8 characters, one a line; LONGTAIL_API_KEY may hold one too.",
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name besides localhost that requests may ask for, such as a proxy's."),
    ] = None,
    max_body: Annotated[int, typer.Option(min=1, metavar="BYTES", help="Largest body of a request.")] = 4 << 20,
    max_rows: Annotated[int, typer.Option(min=1, metavar="N", help="Most texts or rows of a request.")] = 1000,
    max_queue: Annotated[
        int, typer.Option(min=1, metavar="N", help="Rows that may wait; beyond, the answer is 429.")
    ] = 1024,
    deadline: Annotated[
        float, typer.Option(min=0.001, metavar="SECONDS", help="Within which a request is answered, or refused.")
    ] = 10.0,
) -> None:
    """Serve models over HTTP, with a page to question them.

    POST /v1/predict predicts; / is the page; /openapi.json describes everything. SIGHUP has all models read anew.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise MissingExtraError("longtail serve", "serve")
    with step("starting the server"):
        from longtail.app.serve.keys import read_keys
        from longtail.app.serve.manifests import check_models
        from longtail.app.serve.settings import LOOPBACK, Limits, Settings, parse_models
        from longtail.app.serve.sockets import address_of, bind

        if max_rows > max_queue:
            raise ParameterError("--max-queue", max_queue, f"must be at least --max-rows, {max_rows}")
        limits = Limits(body_bytes=max_body, rows=max_rows, queued_rows=max_queue, deadline=deadline)
        settings = Settings(
            parse_models(models),
            host=host,
            port=port,
            workers=workers,
            threads=threads,
            key_file=None if api_key_file is None else str(api_key_file),
            allowed_hosts=allowed_host or [],
            limits=limits,
        )
        keys = read_keys(settings.key_file)
        check_models(settings.models)
        if host not in LOOPBACK and not keys:
            note(f"Anyone who reaches {host} can use this server: --api-key-file asks for a key.")
        listening = bind(host, port)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there are models to reload
        note(f"Listening on {address_of(listening)}, Ctrl-C stops.")
        from longtail.app.serve.server import leave_threads, log_to_standard_error

    log_to_standard_error()
    if workers > 1:
        from longtail.app.serve.supervisor import supervise

        supervise(settings, listening)
    else:
        from longtail.app.serve.server import serve as serve_here

        serve_here(settings, listening)
    note("Stopped.")
    leave_threads()
