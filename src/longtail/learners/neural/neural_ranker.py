"""A fitted neural learner: rebuilds its networks from arrays, ranks and explains."""

from __future__ import annotations

import copy
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from longtail.errors import ModelError, ParameterError
from longtail.kernels.arrays import unit_rows
from longtail.kernels.types import Flags, Float32, Int32
from longtail.learners.base import Learner
from longtail.learners.explanation import Explanation
from longtail.learners.neural.batches import TokenRows
from longtail.learners.neural.encoders import Encoder
from longtail.learners.neural.heads import Head, Level, LevelArrays
from longtail.learners.neural.quantising import from_int8, to_int8, with_int8_products
from longtail.losses import TorchLossName
from longtail.runtime.tensors import Tensors
from longtail.topk import TopK

if TYPE_CHECKING:
    from longtail.features.tokenizer import Tokens
    from longtail.learners.neural.modules.network import Network
    from longtail.learners.neural.ranking import Stack


class NeuralRanker(Learner):
    """Base class of learners with networks over rows of tokens; a subclass trains them."""

    _log_odds_slope = 1.0

    encoder: Encoder | None
    head: Head | None
    loss: TorchLossName
    device: str

    _stored: ClassVar[tuple[str, ...]] = (
        "configs_", "levels_", "level_sizes_", "tensors_", "slope_", "offset_", "history_", "recall_",
        "precision_",
    )  # fmt: skip

    configs_: list[str]
    levels_: list[LevelArrays]
    level_sizes_: list[int]
    tensors_: list[Tensors]
    slope_: float
    offset_: float
    history_: dict[str, list[float]]
    recall_: float
    precision_: str

    def quantised(self) -> Self:
        """Return a copy with 8-bit weights: a quarter of the size, faster on a CPU, and slightly less exact."""
        check_is_fitted(self, "n_labels_")
        found = copy.copy(self)
        if self.precision_ == "float32":
            found.tensors_ = [to_int8(tensors) for tensors in self.tensors_]
            found.precision_ = "int8"
        return found

    def export_onnx(self, path: str | PathLike[str]) -> float:
        """Write the network as an ONNX file that computes the log-odds of all labels; see `exporting.export_onnx`."""
        from longtail.learners.neural.exporting import export_onnx

        check_is_fitted(self, "n_labels_")
        return export_onnx(self, path)

    def _parts(self) -> tuple[Encoder, Head]:
        """Return encoder and head, with their defaults."""
        from longtail.learners.neural.encoders import Pretrained
        from longtail.learners.neural.heads import RankingHead

        return (
            Pretrained() if self.encoder is None else self.encoder,
            RankingHead() if self.head is None else self.head,
        )

    @property
    def reads_label_texts(self) -> bool:
        """Whether the head uses texts of labels."""
        return self._parts()[1].reads_texts

    def _default_features(self) -> Tokens:
        return self._parts()[0].tokens()

    def _check_features(self, features: Any) -> None:
        """Refuse tokens of another tokenizer than the encoder's."""
        own = self._default_features()
        given = [getattr(features, name, None) for name in ("tokenizer", "vectors")]
        if given != [own.tokenizer, own.vectors]:
            made = f"Tokens(tokenizer={own.tokenizer!r}" + (f", vectors={own.vectors!r})" if own.vectors else ")")
            raise ParameterError("features", features, f"must be {made}, what the encoder reads, or None")

    def embed(self, X: Any) -> Float32:
        """Return the vector of each row from the encoder of the last level."""
        from longtail.learners.neural.ranking import vectors

        check_is_fitted(self, "n_labels_")
        return vectors(self._stack().networks[-1], TokenRows(self._check_rows(X)))

    def _points(self, X: sp.csr_array) -> sp.csr_array:
        """Return the vectors of the texts with norm 1."""
        return sp.csr_array(unit_rows(self.embed(X)))

    def _stack(self) -> Stack:
        """Return the networks, which are rebuilt at the first call."""
        from longtail.learners.neural.ranking import Stack

        found = _stacks.get(self)
        if found is None or found[0] is not self.tensors_:
            children = [arrays.get("children") for arrays in self.levels_[1:]]
            networks = [self._network(number) for number in range(len(self.tensors_))]
            stack = Stack(networks, [*children, None], self._parts()[1].proposals())
            found = _stacks[self] = self.tensors_, stack
        return found[1]

    def _network(self, number: int, *, is_whole: bool = False) -> Network:
        """Rebuild the network of a level; with `is_whole` in float32 on a CPU, whatever its precision."""
        import torch

        from longtail.learners.neural.modules.network import Network
        from longtail.learners.neural.parallel import chosen_device

        encoder, head = self._parts()
        level = Level(self.levels_[number], None, self.level_sizes_[number])
        try:
            with torch.random.fork_rng(devices=[]):
                body = encoder.rebuild(self.configs_[number])
                network = Network(body, head.build(level, body, self.loss, None))
            tensors = from_int8(self.tensors_[number]) if self.precision_ == "int8" else self.tensors_[number]
            network.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in tensors.items()})
        except (RuntimeError, KeyError, ValueError, TypeError, IndexError):
            raise ModelError("The networks don't fit the model: its files were changed; train it again.") from None
        if is_whole:
            return network.eval()
        if self.precision_ == "int8":
            return with_int8_products(network.eval())
        return network.to(chosen_device(self.device)).eval()

    def _known(self, allowed: Flags | None) -> Flags:
        known = self.label_counts_ > 0
        return known if allowed is None else known & allowed

    def _topk(self, X: sp.csr_array, k: int, allowed: Flags | None) -> TopK:
        from longtail.learners.neural.ranking import rank

        top = rank(self._stack(), TokenRows(X), k, self._known(allowed))
        return TopK(top.labels, self._calibrated(top))

    def _calibrated(self, top: TopK) -> Float32:
        slope, offset = np.float32(self.slope_), np.float32(self.offset_)
        return np.where(top.labels >= 0, top.scores * slope + offset, np.float32(-np.inf)).astype(np.float32)

    def _explain(self, X: sp.csr_array, labels: Int32) -> list[Explanation]:
        """Attribute each score to the tokens by gradient times input; the rest is the bias."""
        from longtail.learners.neural.ranking import effects

        scores = self._scores_of(X, labels)
        rows, row = TokenRows(X), sp.csr_array(X)
        if not row.data.all():
            row = row.copy()
            row.eliminate_zeros()
        last = len(self.tensors_) - 1
        network = self._network(last, is_whole=True) if self.precision_ == "int8" else self._stack().networks[-1]
        found = effects(network, rows, labels) * self.slope_
        whys = []
        for label, parts in zip(labels.tolist(), found, strict=True):
            score = scores.get(label)
            own = parts if score is not None else np.zeros_like(parts)
            bias = (0.0 if score is None else score) - float(own.sum())
            whys.append(Explanation.from_effects(label, bias, row.indices, own))
        return whys


_stacks: WeakKeyDictionary[NeuralRanker, tuple[object, Any]] = WeakKeyDictionary()
