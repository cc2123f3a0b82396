"""Error responses: a status, a code for programs and a sentence for people, as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from longtail.errors import LongtailError, ModelError

CODES = {
    "bad_request": 400,
    "invalid_json": 400,
    "unauthorised": 401,
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "body_timeout": 408,
    "reload_failed": 409,
    "too_large": 413,
    "unsupported_media_type": 415,
    "invalid": 422,
    "busy": 429,
    "head_too_large": 431,
    "internal": 500,
    "not_ready": 503,
    "deadline": 504,
}
"""HTTP status of each code; programs should use the code."""


class ProblemDetails(Exception):  # noqa: N818  # a response
    """An error response.

    Parameters
    ----------
    code : str
        One of `CODES`.
    message : str
        One sentence that says what is wrong and what to do.
    headers : mapping, optional
        Headers of the response, such as Retry-After.

    Examples
    --------
    >>> problem = ProblemDetails("too_large", "Row 0 has 9 features; the maximum is 8.")
    >>> problem.status, problem.body()
    (413, b'{"error": {"code": "too_large", "message": "Row 0 has 9 features; the maximum is 8."}}')
    """

    def __init__(self, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status = CODES[code]
        self.message = message
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        """Return the response as JSON."""
        return json.dumps({"error": {"code": self.code, "message": self.message}}).encode()


def busy(message: str, **headers: str) -> ProblemDetails:
    """Return a 429 response with Retry-After."""
    return ProblemDetails("busy", message, {"Retry-After": "1", **headers})


def wrong_method(headers: Mapping[str, str] | None) -> ProblemDetails:
    """Return a 405 response."""
    message = "This path doesn't support the method: /openapi.json lists those it does."
    return ProblemDetails("method_not_allowed", message, headers)


def as_problem(error: BaseException) -> ProblemDetails:
    """Return an error response for any exception; internal errors reveal no details."""
    if isinstance(error, ProblemDetails):
        return error
    if isinstance(error, ModelError):
        return ProblemDetails("internal", "The model can't be used: see the server's log.")
    if isinstance(error, LongtailError):
        return ProblemDetails("invalid", " ".join(str(error).split()))
    return ProblemDetails("internal", "Internal error of the server: see its log.")


_MESSAGES = {
    "missing": "is missing",
    "extra_forbidden": "is not known",
    "string_type": "must be a text",
    "int_type": "must be an integer",
    "int_parsing": "must be an integer",
    "int_from_float": "must be an integer",
    "int_parsing_size": "is too large a number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dict_type": "must be an object",
    "greater_than_equal": "must be at least {ge:,}",
    "less_than_equal": "must be at most {le:,}",
    "string_too_long": "must have at most {max_length:,} characters",
    "string_too_short": "must have at least {min_length:,} characters",
    "string_unicode": "must be valid Unicode",
    "string_pattern_mismatch": "must match {pattern}",
    "too_short": "must hold at least {min_length:,}",
    "too_long": "must hold at most {max_length:,}",
    "literal_error": "must be {expected}",
}
"""Messages for pydantic's error types."""


def message_of(error: Mapping[str, Any]) -> str:
    """Return the message for one entry of a validation error.

    Examples
    --------
    >>> message_of({"type": "greater_than_equal", "loc": ("k",), "msg": "...", "ctx": {"ge": 1}})
    'must be at least 1'
    """
    known, bounds = _MESSAGES.get(error["type"]), error.get("ctx", {})
    whole = {name: int(bound) if bound in (0.0, 1.0) else bound for name, bound in bounds.items()}
    return str(error["msg"]) if known is None else known.format(**whole)


def seven_digits(value: Any) -> float:
    """Round to seven digits, the precision of float32; refuse what is not finite.

    Examples
    --------
    >>> seven_digits(0.1234567890123)
    0.1234568
    """
    number = float(f"{value:.7g}")
    if not math.isfinite(number):
        raise ProblemDetails("invalid", "The values are so large that scores are not finite: scale them.")
    return number


def documented(*codes: str) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of error responses with these codes.

    Examples
    --------
    >>> documented("busy")[429]["description"]
    'busy'
    """
    described: dict[int | str, dict[str, Any]] = {}
    for code in codes:
        entry = described.setdefault(
            CODES[code],
            {
                "description": "",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorResponse"}}},
            },
        )
        entry["description"] = ", ".join(filter(None, [entry["description"], code]))
        if code == "busy":
            entry["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait."}}
    return described
