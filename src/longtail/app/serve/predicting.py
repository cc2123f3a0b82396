"""From a request's body to the answer: read, checked, predicted in a batch, explained where wanted."""

from __future__ import annotations

import json
import time
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from longtail.app.serve.batching import Batcher, Lane
from longtail.app.serve.explaining import Wish, explain_row
from longtail.app.serve.labels import GROUPS
from longtail.app.serve.models import Registry, Served
from longtail.app.serve.numbers import shortened
from longtail.app.serve.problems import Problem, said_of
from longtail.app.serve.schemas import PredictRequest, SparseRow
from longtail.app.serve.settings import Limits

_INPUTS = ("text", "texts", "row", "rows")
_SHOWN = 200  # characters of what pydantic says
_PARSED_AT_ONCE = 256 << 10  # bytes; larger bodies are read in a thread of their own

Row = str | tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]


class Predictor:
    """Answers `POST /v1/predict`.

    Parameters
    ----------
    registry : Registry
    batcher : Batcher
    lane : Lane
        For explanations.
    reading : Lane
        For large bodies, so that they don't wait behind questions.
    limits : Limits
    """

    def __init__(self, registry: Registry, batcher: Batcher, lane: Lane, reading: Lane, limits: Limits) -> None:
        self._registry = registry
        self._batcher = batcher
        self._lane = lane
        self._reading = reading
        self._limits = limits

    async def answer(self, body: bytes) -> bytes:
        """Answer one request, in JSON."""
        end = time.monotonic() + self._limits.deadline
        if len(body) <= _PARSED_AT_ONCE:
            served, request, rows = self._read(body)
        else:
            served, request, rows = await self._reading.run(self._read, body, end=end)
        k = min(request.k, max(1, served.model.n_labels))
        only, exclude = (served.labels.ids(name, getattr(request, name)) for name in ("only", "exclude"))
        key: Hashable = (served, k, request.tail, request.min_score, request.names, request.explain)
        if only is not None or exclude is not None:
            key = (served, object())

        def predict(some: Sequence[Any]) -> list[bytes]:
            top, likely = served.predict(some, k, request.tail, only, exclude)
            found = _results(served, top.labels, top.scores, likely, request)
            if request.explain:
                return found  # type: ignore[return-value]  # still to be explained
            return [json.dumps(one, allow_nan=False).encode() for one in found]

        results: list[Any] = await self._batcher.predict(key, rows, predict, end - time.monotonic())
        if request.explain:
            results = await self._lane.run(_explained, served, rows, results, self._wish(request, end), end=end)
        head = json.dumps({"model": served.name, "version": served.version})[:-1].encode()
        return b'%s, "results": [%s]}' % (head, b", ".join(results))

    def _wish(self, request: PredictRequest, end: float) -> Wish:
        return Wish(request.parts, request.nearest, request.offsets == "utf-16", self._limits.explained_spans, end)

    def _read(self, body: bytes) -> tuple[Served, PredictRequest, Sequence[Row]]:
        request = read_request(body)
        served = self._registry.get(request.model)
        return served, request, self._rows(served, request)

    def _rows(self, served: Served, request: PredictRequest) -> Sequence[Row]:
        given = [name for name in _INPUTS if name in request.model_fields_set]
        if len(given) != 1:
            raise Problem("invalid", "Give exactly one of text, texts, row and rows.")
        found: Any = getattr(request, given[0])
        rows = found if given[0].endswith("s") else [found]
        limits, is_text = self._limits, given[0].startswith("text")
        if is_text != served.model.takes_texts:
            takes, others = ("text or texts", "row or rows") if served.model.takes_texts else ("row or rows", "texts")
            raise Problem("invalid", f"The model {served.name} takes {takes}, not {others}.")
        k = min(request.k, served.model.n_labels)
        _limit("The request has {} texts or rows", len(rows), limits.rows)
        _limit("k asks for {} labels a row", request.k, limits.k, "invalid")
        _limit("The request asks for {} labels, rows times k", len(rows) * k, limits.answer_labels)
        for name in ("only", "exclude"):
            _limit(f"{name} has {{}} labels", len(getattr(request, name) or ()), limits.filter_labels)
        if request.explain:
            if not served.explains:
                raise Problem("invalid", f"The model {served.name} can't say what its scores are made of.")
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
    """Read and check a request.

    Examples
    --------
    >>> read_request(b'{"text": "a ship", "k": 3}').k
    3
    """
    try:
        return PredictRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        said = said_of(first)
        said = said if len(said) <= _SHOWN else said[:_SHOWN] + "..."
        if first["type"] == "json_invalid":
            raise Problem("invalid_json", f"The body is not valid JSON: {said}.") from None
        place = first["loc"]
        if place[:1] in (("only",), ("exclude",)) and len(place) > 2:  # neither of the two kinds that a label may have
            place, said = place[:2], "must be a label's id or name"
        named = ".".join(map(str, place[:4]))[:_SHOWN]
        raise Problem("invalid", f"{named or 'The body'} {said}.") from None


def _limit(said: str, size: int, most: int, code: str = "too_large") -> None:
    if size > most:
        raise Problem(code, f"{said.format(f'{size:,}')}; {most:,} are the most.")


def _sparse(served: Served, row: SparseRow, at: int, limits: Limits) -> Row:
    _limit(f"Row {at} has {{}} features", len(row.indices), limits.row_features)
    if len(row.indices) != len(row.values):
        raise Problem("invalid", f"Row {at} has {len(row.indices)} indices and {len(row.values)} values.")
    indices, values = np.array(row.indices, np.int64), np.array(row.values, np.float64)
    if len(indices) and indices.max() >= served.n_features:
        raise Problem(
            "invalid", f"Row {at} has feature {indices.max()}, and features go from 0 to {served.n_features - 1:,}."
        )
    order = np.argsort(indices, kind="stable")
    indices = indices[order]
    if (np.diff(indices) == 0).any():
        raise Problem("invalid", f"Row {at} has a feature twice: give each once.")
    return indices.astype(np.int32), values[order].astype(np.float32)


def _results(
    served: Served,
    labels: npt.NDArray[np.int32],
    scores: npt.NDArray[np.float32],
    likely: npt.NDArray[np.float32] | None,
    request: PredictRequest,
) -> list[dict[str, Any]]:
    """Predictions of some rows."""
    names = served.labels.names if request.names else None
    counts, groups = served.labels.counts, served.labels.groups
    least = request.min_score
    label_rows, score_rows = labels.tolist(), scores.tolist()
    likely_rows = None if likely is None else likely.tolist()
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
                    "score": shortened(score),
                    "probability": None if likely_rows is None else shortened(likely_rows[row][place]),
                    "training_rows": int(counts[label]),
                    "group": GROUPS[groups[label]],
                }
            )
        results.append({"predictions": predictions})
    return results


def _explained(served: Served, rows: Sequence[Row], results: Sequence[dict[str, Any]], wish: Wish) -> list[bytes]:
    written = []
    for row, result in zip(rows, results, strict=True):
        predictions = result["predictions"]
        whys = explain_row(served, row, [one["label"] for one in predictions], wish)
        explained = [{**one, "explanation": whys.get(one["label"])} for one in predictions]
        written.append(json.dumps({"predictions": explained}, allow_nan=False).encode())
    return written
