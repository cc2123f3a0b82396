"""The ASGI application: routes and their OpenAPI description."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException

from longtail import __version__
from longtail.errors import LongtailError, ModelError
from longtail.metrics.frequency import BinName
from longtail.serve.label_requests import describe_label, find_labels
from longtail.serve.metrics import CONTENT_TYPE
from longtail.serve.middleware import CODE, HEALTH, Headers, Middleware
from longtail.serve.pages import PageFile, page_files
from longtail.serve.problems import ProblemDetails, as_problem, documented, message_of, wrong_method
from longtail.serve.schemas import (
    EXAMPLES,
    LARGEST_ID,
    ErrorResponse,
    Health,
    LabelList,
    LabelOrder,
    LabelResponse,
    ModelList,
    ModelResponse,
    PredictRequest,
    PredictResponse,
    ReloadResponse,
)
from longtail.serve.service import Service

logger = logging.getLogger("longtail.serve")

_ABOUT = """Predict labels for texts or rows of features, explain predictions, and browse the labels of a model.

Every error has the form `{"error": {"code": ..., "message": ...}}`: a code for programs, a sentence for people."""
_ALWAYS = ("bad_request", "unauthorised", "forbidden", "busy", "head_too_large", "internal", "not_ready")
_READ = documented(*_ALWAYS, "not_found", "invalid", "deadline")
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_NAME = Path(pattern=r"^[A-Za-z0-9._-]{1,64}$", description="Name of a model.")
_MODEL = Query(max_length=64, description="Name of the model; by default the first.")


def make_app(service: Service) -> Middleware:
    """Build the ASGI application of one process."""
    pages = page_files()
    app = _framework(service)
    _add_health(app, service)
    _add_predict(app, service)
    _add_models(app, service)
    _add_labels(app, service)
    for path, page in pages.items():
        _add_page(app, path, page)
    app.openapi = cache(lambda: _described(FastAPI.openapi(app)))  # type: ignore[method-assign]  # takes 0.1 s

    async def predict(headers: Headers, body: bytes) -> bytes:
        check_json(headers)
        return await service.predictor.answer(body)

    return Middleware(
        app,
        limits=service.settings.limits,
        keys=service.keys,
        metrics=service.metrics,
        open_paths=[*HEALTH, "/openapi.json", *pages],
        direct={("POST", "/v1/predict"): predict},
        known_paths=[*HEALTH, "/v1/predict", "/v1/models", "/v1/labels", "/metrics", "/openapi.json", *pages],
        hosts=service.settings.hosts,
    )


def _framework(service: Service) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    app = FastAPI(
        title="longtail",
        version=__version__,
        description=_ABOUT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        redirect_slashes=False,
    )

    async def refuse(request: Request, error: Exception) -> Response:
        problem = _as_problem(error)
        if isinstance(error, ModelError):
            logger.error("%s %s: %s", request.method, request.url.path, error)
        request.scope[CODE] = problem.code
        return Response(problem.body(), problem.status, problem.headers, "application/json")

    for kind in (ProblemDetails, RequestValidationError, HTTPException, LongtailError, Exception):
        app.add_exception_handler(kind, refuse)
    return app


def _as_problem(error: Exception) -> ProblemDetails:
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"][1:])
        return ProblemDetails("invalid", f"{place} {message_of(first)}.")
    if isinstance(error, HTTPException):
        if error.status_code == 405:
            return wrong_method(error.headers)
        if error.status_code == 404:
            return ProblemDetails("not_found", "There is nothing at this path: /openapi.json lists all paths.")
        return ProblemDetails("bad_request", "The request can't be understood.")
    return as_problem(error)


def check_json(headers: Headers) -> None:
    """Refuse a body that isn't declared as JSON, which also excludes forms on pages of other sites."""
    for name, value in headers:
        if name == b"content-type":
            if value.split(b";")[0].strip().lower() == b"application/json":
                return
            break
    raise ProblemDetails("unsupported_media_type", "Send JSON, with Content-Type: application/json.")


def check_query(request: Request) -> None:
    """Refuse unknown query parameters."""
    known = [one.alias for one in request.scope["route"].dependant.query_params]
    for name in request.query_params:
        shown = name if len(name) <= 64 else name[:64] + "..."
        if name not in known:
            raise ProblemDetails("invalid", f"There is no parameter {shown!r}: the path takes {', '.join(known)}.")


def _add_health(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", response_model=Health, tags=["health"], responses=documented("bad_request"))
    async def healthz() -> Any:
        """Return ok while the process is running."""
        return JSONResponse({"status": "ok"})

    @app.get(
        "/readyz",
        response_model=Health,
        tags=["health"],
        responses={**documented("bad_request"), 503: {"model": Health, "description": "Models are being loaded."}},
    )
    async def readyz() -> Any:
        """Return whether all models are loaded and warmed up."""
        if service.is_ready:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "loading"}, 503, {"Retry-After": "1"})

    @app.get("/metrics", tags=["health"], response_class=Response, responses=documented(*_ALWAYS))
    async def metrics() -> Response:
        """Return the metrics in Prometheus' text format."""
        return Response(await asyncio.to_thread(service.metrics.text), media_type=CONTENT_TYPE)


def _add_predict(app: FastAPI, service: Service) -> None:
    @app.post(
        "/v1/predict",
        response_model=PredictResponse,
        tags=["predict"],
        responses=documented(
            *_ALWAYS,
            *("invalid_json", "not_found", "body_timeout", "too_large", "unsupported_media_type"),
            *("invalid", "deadline"),
        ),
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {
                        "schema": {"$ref": "#/components/schemas/PredictRequest"},
                        "examples": EXAMPLES,
                    }
                },
            }
        },
    )
    async def predict(request: Request) -> Response:
        """Rank the best labels of texts or rows, with explanations on request."""
        check_json(request.headers.raw)
        return Response(await service.predictor.answer(await request.body()), media_type="application/json")


def _add_models(app: FastAPI, service: Service) -> None:
    registry = service.registry

    @app.get("/v1/models", response_model=ModelList, tags=["models"], responses=documented(*_ALWAYS, "deadline"))
    async def models() -> Any:
        """List the models with their descriptions."""
        found, loading = [], []
        for name in registry.names:
            try:
                found.append(await service.questions.run(registry.get(name).describe))
            except ProblemDetails as problem:
                if problem.code != "not_ready":
                    raise
                loading.append(name)
        return JSONResponse({"models": found, "loading": loading})

    @app.post(
        "/v1/models/{name}:reload",
        response_model=ReloadResponse,
        tags=["models"],
        responses={**_READ, **documented("reload_failed", "too_large", "body_timeout")},
    )
    async def reload(name: Annotated[str, _NAME]) -> Any:
        """Load a model's directory again and switch to the new version without dropping requests."""
        new, changed, workers = await service.reload(name)
        return JSONResponse({"name": name, "version": new.version, "changed": changed, "workers": workers})

    @app.api_route("/v1/models/{name}:{action}", methods=_METHODS, include_in_schema=False)
    async def other(action: str) -> Any:
        if action == "reload":
            raise HTTPException(405, headers={"Allow": "POST"})
        raise ProblemDetails("not_found", "A model has no such action: the only one is POST /v1/models/NAME:reload.")

    @app.get("/v1/models/{name}", response_model=ModelResponse, tags=["models"], responses=_READ)
    async def model(name: Annotated[str, _NAME]) -> Any:
        """Describe one model."""
        return JSONResponse(await service.questions.run(registry.get(name).describe))


def _add_labels(app: FastAPI, service: Service) -> None:
    @app.get("/v1/labels", response_model=LabelList, tags=["labels"], responses=_READ)
    async def labels(
        request: Request,
        model: Annotated[str | None, _MODEL] = None,
        q: Annotated[str, Query(max_length=200, description="Text to search for in names, ignoring case.")] = "",
        near: Annotated[
            int | None, Query(ge=0, le=LARGEST_ID, description="List labels similar to this one, most similar first.")
        ] = None,
        bin: Annotated[BinName | None, Query(description="Only labels of the head, the torso or the tail.")] = None,
        min_rows: Annotated[int, Query(ge=0, le=2**53, description="Minimum number of training rows.")] = 0,
        max_rows: Annotated[int | None, Query(ge=0, le=2**53, description="Maximum number of training rows.")] = None,
        order: Annotated[
            LabelOrder, Query(description="Most frequent first, rarest first, by name, or by id.")
        ] = "frequency",
        limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of labels.")] = 20,
        offset: Annotated[int, Query(ge=0, le=LARGEST_ID, description="Number of labels to skip.")] = 0,
    ) -> Any:
        """Search labels by name or frequency, or list the labels similar to one."""
        check_query(request)
        served = service.registry.get(model)
        search = {"bin": bin, "min_rows": min_rows, "max_rows": max_rows, "order": order}
        return JSONResponse(await service.questions.run(find_labels, served, q, near, search, limit, offset))

    @app.get("/v1/labels/{label}", response_model=LabelResponse, tags=["labels"], responses=_READ)
    async def label(
        request: Request,
        label: Annotated[int, Path(ge=0, le=LARGEST_ID, description="Id of a label.")],
        model: Annotated[str | None, _MODEL] = None,
        nearest: Annotated[int, Query(ge=0, le=100, description="Number of similar labels.")] = 10,
        words: Annotated[int, Query(ge=0, le=1000, description="Number of words or features.")] = 20,
    ) -> Any:
        """Describe one label: its frequency, similar labels, and the words with the largest weights."""
        check_query(request)
        served = service.registry.get(model)
        return JSONResponse(await service.questions.run(describe_label, served, label, nearest, words))


def _add_page(app: FastAPI, path: str, page: PageFile) -> None:
    headers = {"ETag": page.tag, "Cache-Control": "no-cache"}

    @app.get(path, include_in_schema=False)
    async def file(request: Request) -> Response:
        if request.headers.get("if-none-match") == page.tag:
            return Response(status_code=304, headers=headers)
        return Response(page.content, media_type=page.kind, headers=headers)


def _described(described: dict[str, Any]) -> dict[str, Any]:
    """Add what FastAPI can't infer: the body of a prediction, the form of errors, and the API key."""
    _, schemas = models_json_schema(
        [(PredictRequest, "validation"), (ErrorResponse, "serialization")], ref_template="#/components/schemas/{model}"
    )
    components = described.setdefault("components", {})
    components.setdefault("schemas", {}).update(schemas["$defs"])
    for name in ("text", "texts", "row", "rows"):  # may be absent, but not null
        components["schemas"]["PredictRequest"]["properties"][name].pop("default", None)
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    refused = {"description": "invalid", "content": documented("invalid")[422]["content"]}
    for path, methods in described["paths"].items():
        for operation in methods.values():
            if "422" in operation["responses"]:
                operation["responses"]["422"] = refused
            if path not in HEALTH:
                operation["security"] = [{}, {"bearer": []}, {"key": []}]
    for name in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(name, None)
    return described
