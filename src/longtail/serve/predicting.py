"""Prediction requests: the body is parsed and checked, its rows predicted in a batch and explained on request."""

from __future__ import annotations

import json
import time
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from pydantic import ValidationError

from longtail.kernels.types import Float32, Int32
from longtail.metrics.frequency import BIN_NAMES
from longtail.serve.batching import Batcher, WorkerThread
from longtail.serve.explaining import ExplainOptions, explain_row
from longtail.serve.models import Served, ServedModels
from longtail.serve.problems import ProblemDetails, message_of, seven_digits
from longtail.serve.schemas import PredictRequest, SparseRow
from longtail.serve.settings import ServerLimits

_INPUTS = ("text", "texts", "row", "rows")
_SHOWN = 200  # characters of what pydantic says
_PARSED_AT_ONCE = 256 << 10  # bytes; larger bodies are parsed in a separate thread

RowContent = str | tuple[Int32, Float32]


class Predictor:
    """Handles `POST /v1/predict`; `questions` runs explanations, `reading` parses large bodies."""

    def __init__(
        self,
        registry: ServedModels,
        batcher: Batcher,
        questions: WorkerThread,
        reading: WorkerThread,
        limits: ServerLimits,
    ) -> None:
        self._registry = registry
        self._batcher = batcher
        self._questions = questions
        self._reading = reading
        self._limits = limits

    async def answer(self, body: bytes) -> bytes:
        """Return the response to a request body, as JSON."""
        end = time.monotonic() + self._limits.deadline
        if len(body) <= _PARSED_AT_ONCE:
            served, request, rows = self._read(body)
        else:
            served, request, rows = await self._reading.run(self._read, body, end=end)
        k = min(request.k, max(1, served.model.n_labels))
        labels = served.model.labels
        only, exclude = (
            None if given is None else labels.ids_of(given, name, hint=False)
            for name, given in (("only", request.only), ("exclude", request.exclude))
        )
        key: Hashable = (served, k, request.tail, request.min_score, request.names, request.explain)
        if only is not None or exclude is not None:
            key = (served, object())

        def predict(some: Sequence[Any]) -> list[bytes]:
            top, probabilities = served.predict(some, k, request.tail, only, exclude)
            found = _results(served, top.labels, top.scores, probabilities, request)
            if request.explain:
                return found  # type: ignore[return-value]  # explained below
            return [json.dumps(one, allow_nan=False).encode() for one in found]

        results: list[Any] = await self._batcher.predict(key, rows, predict, end - time.monotonic())
        if request.explain:
            options = ExplainOptions(
                request.parts, request.nearest, request.offsets == "utf-16", self._limits.explained_spans, end
            )
            results = await self._questions.run(_explained, served, rows, results, options, end=end)
        head = json.dumps({"model": served.name, "version": served.version})[:-1].encode()
        return b'%s, "results": [%s]}' % (head, b", ".join(results))

    def _read(self, body: bytes) -> tuple[Served, PredictRequest, Sequence[RowContent]]:
        request = read_request(body)
        served = self._registry.get(request.model)
        return served, request, self._rows(served, request)

    def _rows(self, served: Served, request: PredictRequest) -> Sequence[RowContent]:
        given = [name for name in _INPUTS if name in request.model_fields_set]
        if len(given) != 1:
            raise ProblemDetails("invalid", "Give exactly one of text, texts, row and rows.")
        found: Any = getattr(request, given[0])
        rows = found if given[0].endswith("s") else [found]
        limits, is_text = self._limits, given[0].startswith("text")
        if is_text != served.model.takes_texts:
            takes, others = ("text or texts", "row or rows") if served.model.takes_texts else ("row or rows", "texts")
            raise ProblemDetails("invalid", f"The model {served.name} takes {takes}, not {others}.")
        k = min(request.k, served.model.n_labels)
        _limit("The request has {} texts or rows", len(rows), limits.rows)
        _limit("k asks for {} labels per row", request.k, limits.k, "invalid")
        _limit("The request asks for {} labels, rows times k", len(rows) * k, limits.answer_labels)
        for name in ("only", "exclude"):
            _limit(f"{name} has {{}} labels", len(getattr(request, name) or ()), limits.filter_labels)
        if request.explain:
            if not served.explains:
                raise ProblemDetails("invalid", f"The model {served.name} doesn't support explanations.")
            _limit(
                "The request has {} labels to explain, rows times k",
                len(rows) * request.k,
                limits.explained_labels,
                "invalid",
            )
        if is_text:
            for text in rows:
                _limit("A text has {} characters", len(text), limits.text_characters)
            if request.explain:
                size = sum(map(len, rows)) * k
                _limit("The request has {} characters to explain, texts times k", size, limits.explained_characters)
            return rows
        return [_sparse(served, row, at, limits) for at, row in enumerate(rows)]


def read_request(body: bytes) -> PredictRequest:
    """Parse and check the body of a request.

    Examples
    --------
    >>> read_request(b'{"text": "a ship", "k": 3}').k
    3
    """
    try:
        return PredictRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        message = message_of(first)
        message = message if len(message) <= _SHOWN else message[:_SHOWN] + "..."
        if first["type"] == "json_invalid":
            raise ProblemDetails("invalid_json", f"The body is not valid JSON: {message}.") from None
        place = first["loc"]
        if place[:1] in (("only",), ("exclude",)) and len(place) > 2:  # neither an id nor a name
            place, message = place[:2], "must be a label's id or name"
        named = ".".join(map(str, place[:4]))[:_SHOWN]
        raise ProblemDetails("invalid", f"{named or 'The body'} {message}.") from None


def _limit(message: str, size: int, most: int, code: str = "too_large") -> None:
    if size > most:
        raise ProblemDetails(code, f"{message.format(f'{size:,}')}; the maximum is {most:,}.")


def _sparse(served: Served, row: SparseRow, at: int, limits: ServerLimits) -> RowContent:
    _limit(f"Row {at} has {{}} features", len(row.indices), limits.row_features)
    if len(row.indices) != len(row.values):
        raise ProblemDetails("invalid", f"Row {at} has {len(row.indices)} indices and {len(row.values)} values.")
    indices, values = np.array(row.indices, np.int64), np.array(row.values, np.float64)
    if len(indices) and indices.max() >= served.n_features:
        raise ProblemDetails(
            "invalid", f"Row {at} has feature {indices.max()}, and features go from 0 to {served.n_features - 1:,}."
        )
    order = np.argsort(indices, kind="stable")
    indices = indices[order]
    if (np.diff(indices) == 0).any():
        raise ProblemDetails("invalid", f"Row {at} has a feature twice: give each once.")
    return indices.astype(np.int32), values[order].astype(np.float32)


def _results(
    served: Served, labels: Int32, scores: Float32, probabilities: Float32 | None, request: PredictRequest
) -> list[dict[str, Any]]:
    """Return the predictions of rows as JSON objects."""
    names = served.labels.names if request.names else None
    counts, bins = served.labels.counts, served.labels.bins
    least = request.min_score
    label_rows, score_rows = labels.tolist(), scores.tolist()
    probability_rows = None if probabilities is None else probabilities.tolist()
    results = []
    for row, (found, of_row) in enumerate(zip(label_rows, score_rows, strict=True)):
        predictions = []
        for place, (label, score) in enumerate(zip(found, of_row, strict=True)):
            if label < 0 or (least is not None and score < least):
                continue
            predictions.append(
                {
                    "label": label,
                    "name": None if names is None else names[label],
                    "score": seven_digits(score),
                    "probability": None if probability_rows is None else seven_digits(probability_rows[row][place]),
                    "training_rows": int(counts[label]),
                    "bin": BIN_NAMES[bins[label]],
                }
            )
        results.append({"predictions": predictions})
    return results


def _explained(
    served: Served, rows: Sequence[RowContent], results: Sequence[dict[str, Any]], options: ExplainOptions
) -> list[bytes]:
    written = []
    for row, result in zip(rows, results, strict=True):
        predictions = result["predictions"]
        whys = explain_row(served, row, [one["label"] for one in predictions], options)
        explained = [{**one, "explanation": whys.get(one["label"])} for one in predictions]
        written.append(json.dumps({"predictions": explained}, allow_nan=False).encode())
    return written
