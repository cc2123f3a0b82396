"""What can go wrong with a request: a status, a code for programs and a sentence for people, in one JSON shape."""

from __future__ import annotations

import json
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
"""Status of each code; a code is all that a program should look at."""


class Problem(Exception):  # noqa: N818  # an answer more than an error
    """An answer other than the wanted one.

    Parameters
    ----------
    code : str
        One of `CODES`.
    message : str
        One sentence: what is wrong and what to do.
    headers : mapping, optional
        For the answer, such as Retry-After.

    Examples
    --------
    >>> problem = Problem("too_large", "Row 0 has 9 features; 8 are the most.")
    >>> problem.status, problem.body()
    (413, b'{"error": {"code": "too_large", "message": "Row 0 has 9 features; 8 are the most."}}')
    """

    def __init__(self, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status = CODES[code]
        self.message = message
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        """The answer as JSON."""
        return json.dumps({"error": {"code": self.code, "message": self.message}}).encode()


def busy(message: str, seconds: int = 1) -> Problem:
    """Refuse for now, and say when to come again."""
    return Problem("busy", message, {"Retry-After": str(seconds)})


def as_problem(error: BaseException) -> Problem:
    """Turn whatever was raised into an answer; nothing of the inside shows where longtail is at fault."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, ModelError):
        return Problem("internal", "The model can't be used: its log says why.")
    if isinstance(error, LongtailError):
        return Problem("invalid", " ".join(str(error).split()))
    return Problem("internal", "This is a fault of the server: its log says more.")


_SAID = {
    "missing": "is missing",
    "extra_forbidden": "is not known",
    "string_type": "must be a text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
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
"""What a check of pydantic says, in this project's words."""


def said_of(error: Mapping[str, Any]) -> str:
    """What is wrong with an input, by one entry of a validation error.

    Examples
    --------
    >>> said_of({"type": "greater_than_equal", "loc": ("k",), "msg": "...", "ctx": {"ge": 1}})
    'must be at least 1'
    """
    known, bounds = _SAID.get(error["type"]), error.get("ctx", {})
    whole = {name: int(bound) if bound in (0.0, 1.0) else bound for name, bound in bounds.items()}
    return str(error["msg"]) if known is None else known.format(**whole)


def documented(*codes: str) -> dict[int | str, dict[str, Any]]:
    """Describe answers with these codes for the OpenAPI description.

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
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}},
            },
        )
        entry["description"] = ", ".join(filter(None, [entry["description"], code]))
        if code == "busy":
            entry["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait."}}
    return described
