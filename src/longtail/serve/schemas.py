"""Requests and responses: validation, and their OpenAPI schemas."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from longtail.metrics.frequency import BinName

LabelOrder = Literal["frequency", "rarest", "name", "label"]
LARGEST_ID = 2**31 - 1
_LARGEST_VALUE = 1e15
_ABSENT: Any = None  # default of fields that may be absent, but not null

Index = Annotated[int, Field(ge=0, le=LARGEST_ID)]
FeatureValue = Annotated[float, Field(ge=-_LARGEST_VALUE, le=_LARGEST_VALUE)]
LabelRef = Annotated[int, Field(ge=0, le=LARGEST_ID)] | Annotated[str, Field(max_length=10_000)]

EXAMPLES: dict[str, Any] = {
    "one text": {"summary": "One text", "value": {"text": "Regulation on the import of fresh fruit", "k": 3}},
    "explained": {
        "summary": "One text, with explanations",
        "value": {"text": "Regulation on the import of fresh fruit", "k": 2, "explain": True},
    },
    "several texts": {
        "summary": "Several texts, with the tail dial at 0.5 and some labels excluded",
        "value": {"texts": ["fresh fruit", "a ship"], "k": 5, "tail": 0.5, "exclude": [0, 7]},
    },
    "rows": {
        "summary": "Rows of features, for a model that takes features",
        "value": {"rows": [{"indices": [3, 17], "values": [0.5, 1.0]}], "k": 5},
    },
}


class _Taken(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class SparseRow(_Taken):
    """A sparse row: indices, each once, and values."""

    indices: list[Index] = Field(examples=[[3, 17]])
    values: list[FeatureValue] = Field(description="One for each index.", examples=[[0.5, 1.0]])


class PredictRequest(_Taken):
    """A prediction request, with exactly one of text, texts, row and rows."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": [name]} for name in ("text", "texts", "row", "rows")]}
    )

    model: str | None = Field(None, max_length=64, description="Name of the model; by default the first.")
    text: str = Field(_ABSENT, description="One text, for a model that takes texts.")
    texts: list[str] = Field(_ABSENT, min_length=1, description="Several texts.")
    row: SparseRow = Field(_ABSENT, description="One row, for a model that takes features.")
    rows: list[SparseRow] = Field(_ABSENT, min_length=1, description="Several rows.")
    k: int = Field(5, ge=1, le=LARGEST_ID, description="Labels per row.")
    tail: float | None = Field(
        None,
        ge=0,
        le=1,
        description="The tail dial: larger values favour rare labels. By default the model's own position.",
    )
    min_score: float | None = Field(None, description="Omit labels with lower scores.")
    only: list[LabelRef] | None = Field(None, description="Rank these labels only, by id or name.")
    exclude: list[LabelRef] | None = Field(None, description="Rank all labels except these.")
    names: bool = Field(True, description="Include label names.")
    explain: bool = Field(False, description="Explain each score.")
    parts: int = Field(20, ge=1, le=1000, description="With explain: maximum words or features per label.")
    nearest: int = Field(5, ge=0, le=50, description="With explain: similar labels per label.")
    offsets: Literal["characters", "utf-16"] = Field(
        "characters",
        description="With explain: unit of positions in a text, characters (code points, as in Python) or UTF-16 units "
        "(as in JavaScript).",
    )


class ErrorBody(BaseModel):
    """Code and message of an error."""

    code: str = Field(description="For programs.", examples=["too_large"])
    message: str = Field(
        description="One sentence for people.", examples=["k asks for 5,000 labels per row; the maximum is 1,000."]
    )


class ErrorResponse(BaseModel):
    """The form of every error."""

    error: ErrorBody


class LabelEntry(BaseModel):
    """A label."""

    label: int = Field(description="Its id.", examples=[17])
    name: str | None = Field(description="null if labels have no names.", examples=["import"])
    training_rows: int = Field(description="Training rows that have it.", examples=[412])
    bin: BinName = Field(
        description="head: the most frequent labels that make up half of all label assignments; torso: those up to "
        "90 %; tail: the others."
    )


class NearLabel(LabelEntry):
    """A label that is similar to another."""

    similarity: float = Field(description="Cosine or inner product, at most 1.")


class Contribution(BaseModel):
    """Contribution of a word or feature to a score."""

    feature: str
    contribution: float


class Source(BaseModel):
    """Contribution of a component of the learner."""

    source: str
    contribution: float


class Others(BaseModel):
    """Sum of the parts that are not listed."""

    parts: int
    contribution: float


class TextSpan(BaseModel):
    """A position in the text, from start up to end."""

    start: int
    end: int
    part: int = Field(description="Index of the part, from 0.")
    contribution: float = Field(description="The part's contribution, divided equally between its positions.")


class PathStep(BaseModel):
    """A node on a path through a tree."""

    node: int | None
    name: str = Field(
        description="Most frequent labels under the node of a label tree; left or right in instance trees."
    )
    parts: list[Contribution]


class TreePath(BaseModel):
    """The path through a tree to a label."""

    tree: str
    share: float | None = Field(description="This tree's share of the score.")
    steps: list[PathStep]


class ExplanationDetails(BaseModel):
    """Explanation of a score: score = bias + contributions of parts and others."""

    score: float = Field(description="The model's score, before the tail dial of the request.")
    bias: float
    parts: list[Contribution] = Field(description="Largest contribution first.")
    others: Others
    spans: list[TextSpan] = Field(description="Positions of the parts in the text, in text order.")
    sources: list[Source]
    path: TreePath | None
    nearest: list[NearLabel]
    remark: str


class Prediction(LabelEntry):
    """A predicted label."""

    score: float
    probability: float | None = Field(
        description="Probability of the label; null if the model isn't calibrated or the tail dial is set."
    )
    explanation: ExplanationDetails | None = Field(None, description="With explain.")


class RowResult(BaseModel):
    """Labels of one row, best first."""

    predictions: list[Prediction]


class PredictResponse(BaseModel):
    """One result per row, in the order of the rows."""

    model: str
    version: str
    results: list[RowResult]


class LabelList(BaseModel):
    """Labels that match a request."""

    model: str
    version: str
    total: int = Field(description="Number of matching labels.")
    labels: list[LabelEntry | NearLabel]


class WordWeight(BaseModel):
    """A word or feature and its weight for a label."""

    feature: str
    weight: float


class LabelResponse(LabelEntry):
    """One label."""

    model: str
    version: str
    share_of_rows: float = Field(description="Share of the training rows with the label.")
    rank: int = Field(description="1 for the most frequent label.")
    nearest: list[NearLabel]
    nearest_by: str | None = Field(description="Basis of the similarity: embeddings, weights or leaves.")
    words: list[WordWeight] | None = Field(
        description="Words or features with the largest weights, null if there are no weights."
    )
    path: TreePath | None = Field(description="Path to the label in the first label tree that contains it.")


class BinSummary(BaseModel):
    """Labels of the head, the torso or the tail."""

    labels: int
    least_rows: int
    most_rows: int


class FrequencySummary(BaseModel):
    """Summary statistics of label frequencies."""

    most: int = Field(description="Training rows of the most frequent label.")
    median: float = Field(description="Median over labels with training rows.")
    with_one_row: int
    without_rows: int
    bins: dict[str, BinSummary]


class ModelResponse(BaseModel):
    """One model."""

    name: str
    version: str = Field(description="First digits of the checksum.")
    checksum: str = Field(description="Checksum of model.json, which contains those of all other files.")
    loaded_at: float = Field(description="Seconds since 1970.")
    recipe: str | None
    takes: Literal["texts", "features"]
    features: int
    labels: int
    rows: int = Field(description="Training rows.")
    has_names: bool
    calibrated: bool
    dial: float | None = Field(description="Position of the tail dial in the model, if it has one.")
    has_explanations: bool
    has_tree: bool
    nearest_by: str | None
    trained_on: str | None
    training: dict[str, Any]
    frequencies: FrequencySummary


class ModelList(BaseModel):
    """All models that are loaded."""

    models: list[ModelResponse]
    loading: list[str] = Field(description="Names of models that are not ready yet.")


class ReloadResponse(BaseModel):
    """Result of a reload."""

    name: str
    version: str
    changed: bool = Field(description="False if the directory contains the version that was served before.")
    workers: int = Field(description="Processes that serve this version now.")


class Health(BaseModel):
    """State of the server."""

    status: Literal["ok", "ready", "loading"]
