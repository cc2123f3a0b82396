"""The application: paths, what they answer, and their description."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException

from longtail import __version__
from longtail.app.serve.asking import describe_label, find_labels
from longtail.app.serve.guard import CODE, HEALTH, Guard, Headers
from longtail.app.serve.metrics import CONTENT_TYPE
from longtail.app.serve.pages import PageFile, page_files
from longtail.app.serve.problems import Problem, as_problem, documented, said_of
from longtail.app.serve.schemas import (
    EXAMPLES,
    ErrorAnswer,
    Group,
    Health,
    LabelAnswer,
    LabelList,
    LargestId,
    ModelAnswer,
    ModelList,
    Order,
    PredictAnswer,
    PredictRequest,
    ReloadAnswer,
)
from longtail.app.serve.service import Service
from longtail.errors import LongtailError, ModelError

logger = logging.getLogger("longtail.serve")

_ABOUT = """Predict labels for texts or rows of features, ask why, and look at the labels of a model.

Every error has one shape, `{"error": {"code": ..., "message": ...}}`: a code for programs and a sentence for people."""
_ALWAYS = ("bad_request", "unauthorised", "forbidden", "busy", "head_too_large", "internal", "not_ready")
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_NAME = Path(pattern=r"^[A-Za-z0-9._-]{1,64}$", description="Name of a model.")
_MODEL = Query(max_length=64, description="Name of the model; the first when left out.")


def make_app(service: Service) -> Guard:
    """Build the ASGI application of one process."""
    pages = page_files()
    app = _framework(service)
    _add_health(app, service)
    _add_predict(app, service)
    _add_models(app, service)
    _add_labels(app, service)
    for path, page in pages.items():
        _add_page(app, path, page)
    _describe(app)

    async def predict(headers: Headers, body: bytes) -> bytes:
        check_json(headers)
        return await service.predictor.answer(body)

    return Guard(
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

    for kind in (Problem, RequestValidationError, HTTPException, LongtailError, Exception):
        app.add_exception_handler(kind, refuse)
    return app


def _as_problem(error: Exception) -> Problem:
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"][1:])
        return Problem("invalid", f"{place} {said_of(first)}.")
    if isinstance(error, HTTPException):
        if error.status_code == 405:
            return Problem(
                "method_not_allowed", "This path has other methods: /openapi.json lists them.", error.headers
            )
        if error.status_code == 404:
            return Problem("not_found", "There is nothing at this path: /openapi.json lists what there is.")
        return Problem("bad_request", "The request can't be understood.")
    return as_problem(error)


def check_json(headers: Headers) -> None:
    """Refuse a body that doesn't say that it is JSON, which also keeps forms of other sites' pages out."""
    for name, value in headers:
        if name == b"content-type":
            if value.split(b";")[0].strip().lower() == b"application/json":
                return
            break
    raise Problem("unsupported_media_type", "Send JSON, with Content-Type: application/json.")


def check_query(request: Request) -> None:
    """Refuse parameters of the address that the path doesn't have."""
    known = [one.alias for one in request.scope["route"].dependant.query_params]
    for name in request.query_params:
        shown = name if len(name) <= 64 else name[:64] + "..."
        if name not in known:
            raise Problem("invalid", f"There is no parameter {shown!r}: the path takes {', '.join(known)}.")


def _add_health(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", response_model=Health, tags=["health"], responses=documented("bad_request"))
    async def healthz() -> Any:
        """Say that the process lives."""
        return JSONResponse({"status": "ok"})

    @app.get(
        "/readyz",
        response_model=Health,
        tags=["health"],
        responses={**documented("bad_request"), 503: {"model": Health, "description": "Models are being loaded."}},
    )
    async def readyz() -> Any:
        """Say whether all models are loaded and warm."""
        if service.is_ready:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "loading"}, 503, {"Retry-After": "1"})

    @app.get("/metrics", tags=["health"], response_class=Response, responses=documented(*_ALWAYS))
    async def metrics() -> Response:
        """Give counts and times in the format of Prometheus."""
        return Response(await asyncio.to_thread(service.metrics.text), media_type=CONTENT_TYPE)


def _add_predict(app: FastAPI, service: Service) -> None:
    @app.post(
        "/v1/predict",
        response_model=PredictAnswer,
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
        """Rank the best labels of texts or rows, and explain them if wanted."""
        check_json(request.headers.raw)
        return Response(await service.predictor.answer(await request.body()), media_type="application/json")


def _add_models(app: FastAPI, service: Service) -> None:
    registry = service.registry

    @app.get("/v1/models", response_model=ModelList, tags=["models"], responses=documented(*_ALWAYS, "deadline"))
    async def models() -> Any:
        """List the models and what each of them is."""
        found, loading = [], []
        for name in registry.names:
            try:
                found.append(await service.lane.run(registry.get(name).describe))
            except Problem as problem:
                if problem.code != "not_ready":
                    raise
                loading.append(name)
        return JSONResponse({"models": found, "loading": loading})

    @app.post(
        "/v1/models/{name}:reload",
        response_model=ReloadAnswer,
        tags=["models"],
        responses=documented(
            *_ALWAYS, "not_found", "reload_failed", "invalid", "deadline", "too_large", "body_timeout"
        ),
    )
    async def reload(name: Annotated[str, _NAME]) -> Any:
        """Read a model's directory anew and swap the version in; requests go on meanwhile, and none is dropped."""
        new, changed, workers = await service.reload(name)
        return JSONResponse({"name": name, "version": new.version, "changed": changed, "workers": workers})

    @app.api_route("/v1/models/{name}:{action}", methods=_METHODS, include_in_schema=False)
    async def other(action: str) -> Any:
        if action == "reload":
            raise HTTPException(405, headers={"Allow": "POST"})
        raise Problem("not_found", "A model has no such action: POST /v1/models/NAME:reload is the only one.")

    @app.get(
        "/v1/models/{name}",
        response_model=ModelAnswer,
        tags=["models"],
        responses=documented(*_ALWAYS, "not_found", "invalid", "deadline"),
    )
    async def model(name: Annotated[str, _NAME]) -> Any:
        """Say what one model is."""
        return JSONResponse(await service.lane.run(registry.get(name).describe))


def _add_labels(app: FastAPI, service: Service) -> None:
    @app.get(
        "/v1/labels",
        response_model=LabelList,
        tags=["labels"],
        responses=documented(*_ALWAYS, "not_found", "invalid", "deadline"),
    )
    async def labels(
        request: Request,
        model: Annotated[str | None, _MODEL] = None,
        q: Annotated[str, Query(max_length=200, description="Text to look for in names, whatever the case.")] = "",
        near: Annotated[
            int | None, Query(ge=0, le=LargestId, description="List labels alike to this one, nearest first.")
        ] = None,
        group: Annotated[Group | None, Query(description="Only labels of the head, the torso or the tail.")] = None,
        min_rows: Annotated[int, Query(ge=0, le=2**53, description="Least training rows.")] = 0,
        max_rows: Annotated[int | None, Query(ge=0, le=2**53, description="Most training rows.")] = None,
        order: Annotated[Order, Query(description="Most frequent or rarest first, by name, or by id.")] = "frequency",
        limit: Annotated[int, Query(ge=1, le=1000, description="Labels to list.")] = 20,
        offset: Annotated[int, Query(ge=0, le=LargestId, description="Labels to pass over first.")] = 0,
    ) -> Any:
        """Find labels by name or frequency, or those that are alike to one."""
        check_query(request)
        served = service.registry.get(model)
        search = {"group": group, "min_rows": min_rows, "max_rows": max_rows, "order": order}
        return JSONResponse(await service.lane.run(find_labels, served, q, near, search, limit, offset))

    @app.get(
        "/v1/labels/{label}",
        response_model=LabelAnswer,
        tags=["labels"],
        responses=documented(*_ALWAYS, "not_found", "invalid", "deadline"),
    )
    async def label(
        request: Request,
        label: Annotated[int, Path(ge=0, le=LargestId, description="Id of a label.")],
        model: Annotated[str | None, _MODEL] = None,
        nearest: Annotated[int, Query(ge=0, le=100, description="Labels alike to give.")] = 10,
        words: Annotated[int, Query(ge=0, le=1000, description="Words or features to give.")] = 20,
    ) -> Any:
        """Describe one label: how frequent it is, which labels are alike, and the words that it listens to."""
        check_query(request)
        served = service.registry.get(model)
        return JSONResponse(await service.lane.run(describe_label, served, label, nearest, words))


def _add_page(app: FastAPI, path: str, page: PageFile) -> None:
    headers = {"ETag": page.tag, "Cache-Control": "no-cache"}

    @app.get(path, include_in_schema=False)
    async def file(request: Request) -> Response:
        if request.headers.get("if-none-match") == page.tag:
            return Response(status_code=304, headers=headers)
        return Response(page.content, media_type=page.kind, headers=headers)


def _describe(app: FastAPI) -> None:
    """Describe the application when it is asked for, which takes a tenth of a second."""
    made: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not made:
            made.update(_described(FastAPI.openapi(app)))
        return made

    app.openapi = openapi  # type: ignore[method-assign]


def _described(described: dict[str, Any]) -> dict[str, Any]:
    """Add what the framework doesn't see: the body of a prediction, the shape of errors, and the API key."""
    _, schemas = models_json_schema(
        [(PredictRequest, "validation"), (ErrorAnswer, "serialization")], ref_template="#/components/schemas/{model}"
    )
    components = described.setdefault("components", {})
    components.setdefault("schemas", {}).update(schemas["$defs"])
    for name in ("text", "texts", "row", "rows"):  # absent, not null
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
