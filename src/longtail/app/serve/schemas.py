"""Requests and answers: what is taken and checked, and what the OpenAPI description says comes back."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Group = Literal["head", "torso", "tail"]
Order = Literal["frequency", "rarest", "name", "label"]
LargestId = 2**31 - 1
_LARGEST_VALUE = 1e15
_ABSENT: Any = None  # left out, which null is not

Index = Annotated[int, Field(ge=0, le=LargestId)]
Value = Annotated[float, Field(ge=-_LARGEST_VALUE, le=_LARGEST_VALUE)]
LabelRef = Annotated[int, Field(ge=0, le=LargestId)] | Annotated[str, Field(max_length=10_000)]

EXAMPLES: dict[str, Any] = {
    "one text": {"summary": "One text", "value": {"text": "Regulation on the import of fresh fruit", "k": 3}},
    "explained": {
        "summary": "One text, with reasons",
        "value": {"text": "Regulation on the import of fresh fruit", "k": 2, "explain": True},
    },
    "several texts": {
        "summary": "Several texts, the tail dial at a half, some labels left out",
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
    """A row of features: which ones, each once, and their values; all others are 0."""

    indices: list[Index] = Field(examples=[[3, 17]])
    values: list[Value] = Field(description="One for each index.", examples=[[0.5, 1.0]])


class PredictRequest(_Taken):
    """What to predict, for which rows: exactly one of text, texts, row and rows."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": [name]} for name in ("text", "texts", "row", "rows")]}
    )

    model: str | None = Field(None, max_length=64, description="Name of the model; the first when left out.")
    text: str = Field(_ABSENT, description="One text, for a model that takes texts.")
    texts: list[str] = Field(_ABSENT, min_length=1, description="Several texts.")
    row: SparseRow = Field(_ABSENT, description="One row, for a model that takes features.")
    rows: list[SparseRow] = Field(_ABSENT, min_length=1, description="Several rows.")
    k: int = Field(5, ge=1, le=LargestId, description="Labels a row.")
    tail: float | None = Field(
        None,
        ge=0,
        le=1,
        description="The tail dial: the higher, the more rare labels come up. As the model has it when left out.",
    )
    min_score: float | None = Field(None, description="Leave out labels that score below.")
    only: list[LabelRef] | None = Field(None, description="Rank these labels alone, by id or name.")
    exclude: list[LabelRef] | None = Field(None, description="Rank all labels but these.")
    names: bool = Field(True, description="Give the names of labels.")
    explain: bool = Field(False, description="Say what made up each score.")
    parts: int = Field(20, ge=1, le=1000, description="With explain: words or features a label at most.")
    nearest: int = Field(5, ge=0, le=50, description="With explain: labels alike to give for each label.")
    offsets: Literal["characters", "utf-16"] = Field(
        "characters",
        description="With explain: how places in a text are counted, in characters (code points) as Python does, or "
        "in UTF-16 units as JavaScript does.",
    )


class ErrorBody(BaseModel):
    """What went wrong."""

    code: str = Field(description="For programs.", examples=["too_large"])
    message: str = Field(
        description="One sentence for people.", examples=["k asks for 5,000 labels a row; 1,000 are the most."]
    )


class ErrorAnswer(BaseModel):
    """The shape of every error."""

    error: ErrorBody


class LabelEntry(BaseModel):
    """A label."""

    label: int = Field(description="Its id.", examples=[17])
    name: str | None = Field(description="None in a model without names.", examples=["import"])
    training_rows: int = Field(description="Training rows that have it.", examples=[412])
    group: Group = Field(
        description="head: the labels that hold the first half of all label assignments, most frequent first; "
        "torso: up to nine tenths; tail: the others."
    )


class NearLabel(LabelEntry):
    """A label that is like another one."""

    similarity: float = Field(description="Cosine or inner product: 1 at most.")


class Part(BaseModel):
    """What a word or feature added to a score."""

    feature: str
    contribution: float


class Source(BaseModel):
    """What a part of the learner contributed."""

    source: str
    contribution: float


class Others(BaseModel):
    """The parts that are not listed."""

    parts: int
    contribution: float


class TextSpan(BaseModel):
    """A place in the text: from start to before end."""

    start: int
    end: int
    part: int = Field(description="Which of the parts, counted from 0.")
    contribution: float = Field(description="The part's contribution, shared out among its places.")


class PathStep(BaseModel):
    """A step of the way through a tree."""

    node: int | None
    name: str = Field(
        description="Most frequent labels under the node of a label tree; left or right in trees over rows."
    )
    parts: list[Part]


class TreePath(BaseModel):
    """The way through a tree to a label."""

    tree: str
    share: float | None = Field(description="Share of what all trees say that comes from this one.")
    steps: list[PathStep]


class ExplanationAnswer(BaseModel):
    """What made up a score: score = bias + contributions of parts and others."""

    score: float = Field(description="The model's own score, before a tail dial that the request sets.")
    bias: float
    parts: list[Part] = Field(description="The largest effect first.")
    others: Others
    spans: list[TextSpan] = Field(description="Where in the text the parts stand, in the order of the text.")
    sources: list[Source]
    path: TreePath | None
    nearest: list[NearLabel]
    remark: str


class Prediction(LabelEntry):
    """A label that was predicted."""

    score: float
    probability: float | None = Field(
        description="That the label is recorded; None where the model is not calibrated or the tail dial is set."
    )
    explanation: ExplanationAnswer | None = Field(None, description="With explain.")


class Result(BaseModel):
    """Labels of one row, best first."""

    predictions: list[Prediction]


class PredictAnswer(BaseModel):
    """One result a row, in the order of the rows."""

    model: str
    version: str
    results: list[Result]


class LabelList(BaseModel):
    """Labels that were asked for."""

    model: str
    version: str
    total: int = Field(description="All that match, listed or not.")
    labels: list[LabelEntry | NearLabel]


class Word(BaseModel):
    """A word or feature and its weight for a label."""

    feature: str
    weight: float


class LabelAnswer(LabelEntry):
    """One label."""

    model: str
    version: str
    share_of_rows: float = Field(description="Training rows that have it, over all.")
    rank: int = Field(description="1 for the most frequent label.")
    nearest: list[NearLabel]
    nearest_by: str | None = Field(description="embeddings, weights or leaves: what says that labels are alike.")
    words: list[Word] | None = Field(description="Words or features with the largest weights, where there are weights.")
    path: TreePath | None = Field(description="The way to it in the first label tree that holds it.")


class GroupSummary(BaseModel):
    """Labels of the head, the torso or the tail."""

    labels: int
    least_rows: int
    most_rows: int


class FrequencySummary(BaseModel):
    """Label frequencies in a few numbers."""

    most: int = Field(description="Training rows of the most frequent label.")
    median: float = Field(description="Of the labels that have any.")
    with_one_row: int
    without_rows: int
    groups: dict[str, GroupSummary]


class ModelAnswer(BaseModel):
    """One model."""

    name: str
    version: str = Field(description="First digits of the checksum.")
    checksum: str = Field(description="Of model.json, which holds the checksums of all files of the model.")
    loaded_at: float = Field(description="Seconds since 1970.")
    recipe: str | None
    takes: Literal["texts", "features"]
    features: int
    labels: int
    rows: int = Field(description="Training rows.")
    has_names: bool
    calibrated: bool
    has_dial: bool
    dial: float | None = Field(description="Position of the tail dial that is part of the model, if it has one.")
    has_explanations: bool
    has_tree: bool
    nearest_by: str | None
    trained_on: str | None
    training: dict[str, Any]
    frequencies: FrequencySummary


class ModelList(BaseModel):
    """All models that are loaded."""

    models: list[ModelAnswer]
    loading: list[str] = Field(description="Names of models that are not ready yet.")


class ReloadAnswer(BaseModel):
    """What became of a reload."""

    name: str
    version: str
    changed: bool = Field(description="False where the directory holds the version that was served already.")
    workers: int = Field(description="Processes that serve this version now.")


class Health(BaseModel):
    """Whether the server lives, or is ready."""

    status: Literal["ok", "ready", "loading"]
