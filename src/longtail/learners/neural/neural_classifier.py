"""The neural learner over texts: an encoder, a head that scores labels, and a loss, trained end to end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
import scipy.sparse as sp

from longtail.config import thread_count
from longtail.data.sparse import column_counts
from longtail.errors import InputError, ParameterError
from longtail.kernels.augmentation import Augmentation, with_copies
from longtail.kernels.types import Array
from longtail.learners.cost import TrainingCost
from longtail.learners.held_out import split_rows
from longtail.learners.neural.batches import TokenRows
from longtail.learners.neural.device import check_device
from longtail.learners.neural.encoders import Encoder
from longtail.learners.neural.heads import Head, LabelCosts, Level
from longtail.learners.neural.levels import parents_first, recall_of, shared_parameters, truths_of
from longtail.learners.neural.neural_ranker import NeuralRanker
from longtail.learners.platt import fit_platt
from longtail.learners.rows import digest_of
from longtail.learners.training.averaging import RunningAverage, Weights
from longtail.learners.training.fit import Schedule, fit, time_steps
from longtail.losses import TORCH_LOSSES, TorchLossName
from longtail.metrics import evaluate
from longtail.runtime.library_threads import require_torch
from longtail.runtime.memory import check_memory, resident_memory
from longtail.runtime.progress import show_progress
from longtail.runtime.task import current_engine
from longtail.runtime.tensors import Tensors
from longtail.topk import TopK
from longtail.validation import SEED, Boolean, Constraint, Integer, Number, OneOf, Optional, as_list, parameters_of
from longtail.weighting import Weighting, get_weighting

if TYPE_CHECKING:
    from longtail.learners.neural.modules.network import Network
    from longtail.learners.neural.parallel import ProcessGroup
    from longtail.learners.neural.ranking import Stack
    from longtail.learners.neural.training import Proposed

Precision = Literal["float32", "bfloat16"]

_CALIBRATION_ROWS, _CALIBRATION_CUTOFF, _LEAST_SLOPE = 2000, 50, 0.01
_PILOT_STEPS = 4
_COPIES = 5  # weights, gradients, first and second moments, and the best weights so far


class _LevelRows(NamedTuple):
    """Rows with their labels at a level of the tree, and what the level above proposes for them."""

    tokens: TokenRows
    Y: sp.csr_array
    proposed: Proposed | None = None


class NeuralClassifier(NeuralRanker):
    """Encode texts and score labels with networks that are trained end to end.

    Takes rows of tokens from `Tokens`, or texts inside of a `TextLearner`. Training and prediction need torch
    (``pip install 'longtail[neural]'``). Scores are log-odds.

    Parameters
    ----------
    encoder : Encoder, optional
        `Pretrained`, `BiLSTM`, `CNN` or `WordBag`; by default ``Pretrained("minilm")``.
    head : Head, optional
        `RankingHead`, `AttentionHead` or `AdaptiveHead`; by default ``RankingHead()``.
    loss : {"logistic", "grank", "softmax", "margin", "negative-mining"}
        One of `longtail.losses.TORCH_LOSSES`: binary cross-entropy of each label; the group-wise ranking loss of
        X-GRank; softmax over labels; or the margin losses of GLaS.
    weighting : Weighting or str, optional
        Per-label costs, for instance ``PW()`` or ``"pw-cb"``, scaled to mean 1, or in each cluster of `AdaptiveHead`
        to the number of clusters. Clusters of labels have costs from their own counts.
    row_power : float
        The loss of a row is weighted by its number of labels to this power.
    label_texts : sequence of str, optional
        A text per label, for heads that use them.
    epochs : int
        Maximum number of epochs.
    batch_size : int
        Rows per step.
    micro_batch_size : int, optional
        Rows per forward pass, of which a step adds up the gradients; by default 16 on a CPU, one micro-batch per
        thread, and `batch_size` on a GPU.
    learning_rate, head_learning_rate : float
        Highest learning rates of the encoder and of the head.
    layer_decay : float
        The learning rate of each layer of the encoder is that of the layer above times this.
    weight_decay : float
    warmup_fraction : float
        Share of the steps in which learning rates rise from 0; they fall to 0 in the others.
    max_grad_norm : float
        Gradients are clipped to this norm.
    validation_fraction : float
        Share of the rows held out for early stopping and Platt scaling; none if there would be fewer than 20, and at
        most 2,000 rows.
    evals_per_epoch : int
        Evaluations on these rows per epoch.
    patience : int
        Evaluations without progress until training stops early.
    average_from : float
        Share of the epochs after which weights are averaged over all later evaluations (stochastic weight averaging);
        1 for never.
    cache_frozen : bool
        Whether frozen layers of the encoder run once over all rows instead of in every epoch, on a CPU, with their
        output in a temporary file of 2 bytes x tokens x width.
    precision : {"float32", "bfloat16"}
        Of matrix products in training.
    device : str
        "auto" for a GPU if there is one.
    random_state : int
    n_jobs : int, optional
        Threads; None as `longtail.config_context` says. The result does not depend on it.

    Attributes
    ----------
    history_ : dict of list
        Per evaluation: loss, gradient_norm, rows_per_second, and validation, which is nDCG@5.
    recall_ : float
        Share of the true labels of held-out rows that retrieval, or the levels above the last, pass on; 1 without such
        stages.

    Examples
    --------
    >>> from longtail import TextLearner
    >>> from longtail.learners import CNN, NeuralClassifier
    >>> learner = NeuralClassifier(
    ...     encoder=CNN(n_filters=8, hidden_size=16), epochs=20, learning_rate=0.01, head_learning_rate=0.01,
    ...     validation_fraction=0,
    ... )
    >>> texts, Y = ["a red car", "a blue bus"] * 8, [[1, 0], [0, 1]] * 8
    >>> TextLearner(learner=learner).fit(texts, Y).predict_topk(["a red car"], k=1).labels
    array([[0]], dtype=int32)
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "epochs": Integer(1),
        "batch_size": Integer(1),
        "micro_batch_size": Optional(Integer(1)),
        "evals_per_epoch": Integer(1),
        "patience": Integer(1),
        "random_state": SEED,
        "learning_rate": Number(above=0),
        "head_learning_rate": Number(above=0),
        "max_grad_norm": Number(above=0),
        "layer_decay": Number(above=0),
        "weight_decay": Number(low=0),
        "warmup_fraction": Number(low=0, below=1),
        "validation_fraction": Number(low=0, below=1),
        "average_from": Number(low=0, high=1),
        "row_power": Number(low=0, high=1),
        "loss": OneOf(*TORCH_LOSSES),
        "precision": OneOf(*get_args(Precision)),
        "cache_frozen": Boolean(),
    }

    _gives_probabilities = True

    def __init__(
        self,
        *,
        encoder: Encoder | None = None,
        head: Head | None = None,
        loss: TorchLossName = "logistic",
        weighting: Weighting | str | None = None,
        row_power: float = 0.0,
        label_texts: Sequence[str] | None = None,
        epochs: int = 10,
        batch_size: int = 32,
        micro_batch_size: int | None = None,
        learning_rate: float = 1e-4,
        head_learning_rate: float = 1e-3,
        layer_decay: float = 1.0,
        weight_decay: float = 0.01,
        warmup_fraction: float = 0.1,
        max_grad_norm: float = 1.0,
        validation_fraction: float = 0.02,
        evals_per_epoch: int = 1,
        patience: int = 5,
        average_from: float = 1.0,
        cache_frozen: bool = True,
        precision: Precision = "float32",
        device: str = "auto",
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.encoder = encoder
        self.head = head
        self.loss = loss
        self.weighting = weighting
        self.row_power = row_power
        self.label_texts = label_texts
        self.epochs = epochs
        self.batch_size = batch_size
        self.micro_batch_size = micro_batch_size
        self.learning_rate = learning_rate
        self.head_learning_rate = head_learning_rate
        self.layer_decay = layer_decay
        self.weight_decay = weight_decay
        self.warmup_fraction = warmup_fraction
        self.max_grad_norm = max_grad_norm
        self.validation_fraction = validation_fraction
        self.evals_per_epoch = evals_per_epoch
        self.patience = patience
        self.average_from = average_from
        self.cache_frozen = cache_frozen
        self.precision = precision
        self.device = device
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name, kind in (("encoder", Encoder), ("head", Head)):
            if getattr(self, name) is not None and not isinstance(getattr(self, name), kind):
                raise ParameterError(name, getattr(self, name), f"must be one of longtail's {name}s, or None")
        require_torch("A neural learner")
        encoder, head = self._parts()
        for name, part in (("encoder", encoder), ("head", head)):
            with parameters_of(name):
                part._check_parameters()
        if head.reads_states and not encoder.has_states:
            named = type(head).__name__
            raise ParameterError("encoder", encoder, f"must have states of tokens, which {named} uses: use BiLSTM")
        if self.loss not in head.losses:
            listed = ", ".join(head.losses)
            raise ParameterError("loss", self.loss, f"must be {listed} with the head {type(head).__name__}")
        check_device(self.device)
        if self.label_texts is not None:
            if not head.reads_texts:
                raise ParameterError("label_texts", self.label_texts, "must be None: the head uses none")
            if as_list(self.label_texts) is None:
                raise ParameterError("label_texts", self.label_texts, "must be a text per label")

    def _fit_augmented(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation) -> None:
        """Copy training rows only: a copy of a held-out row would leak it."""
        self._fit(X, Y, augmentation)

    def _fit(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation | None = None) -> None:
        """Train here, or in all processes of a cluster."""
        self._check_label_texts(Y.shape[1])
        engine = current_engine()
        if engine is None:
            self._train_here(X, Y, augmentation)
        else:
            self.__dict__.update(engine.together(self, "_trained", (X, Y, augmentation)))

    def _trained(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation | None) -> dict[str, Any]:
        """Train, and return the fitted attributes."""
        self._train_here(X, Y, augmentation)
        return {name: value for name, value in vars(self).items() if name.endswith("_")}

    def _train_here(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation | None) -> None:
        from longtail.learners.neural.parallel import chosen_device, join
        from longtail.runtime.library_threads import one_torch_thread

        share = min(float(self.validation_fraction), _CALIBRATION_ROWS / Y.shape[0])
        chosen, held_out = split_rows(Y, self.label_counts_, share, int(self.random_state))
        trained, labels = X[chosen], Y[chosen]
        if augmentation is not None:
            trained, labels = with_copies(trained, labels, augmentation)
        train, others = _LevelRows(TokenRows(trained), labels), _LevelRows(TokenRows(X[held_out]), Y[held_out])
        group = join(chosen_device(self.device))
        with one_torch_thread():
            stack = self._train_levels(train, others, group, X.shape[1], augmentation)
            with show_progress(False):
                known = others if len(held_out) else train
                self._calibrate(stack, known.tokens, known.Y)

    def _train_levels(
        self,
        train: _LevelRows,
        others: _LevelRows,
        group: ProcessGroup,
        longest: int,
        augmentation: Augmentation | None,
    ) -> Stack:
        """Train the networks in turn, the highest level first; each starts from the encoder above it."""
        from longtail.learners.neural.ranking import Stack, propose

        encoder, head = self._parts()
        levels = head.levels(train.tokens, train.Y, self.label_texts, int(self.random_state))
        truths = truths_of(levels, others.Y)
        self.levels_, self.level_sizes_ = [level.arrays for level in levels], [level.n_labels for level in levels]
        children = [*(level.children for level in levels[1:]), None]
        self.history_, self.recall_, self.configs_, self.tensors_ = {}, 1.0, [], []
        networks: list[Network] = []
        proposals, copies = head.proposals(), 0 if augmentation is None else augmentation.copies
        for number, level in enumerate(levels):
            train, others = train._replace(Y=level.Y), others._replace(Y=truths[number])
            network = self._begin(encoder, head, level, train.tokens, longest, networks, copies)
            networks.append(network)
            history = self._train_level(network, train, others, group, (number, longest, augmentation))
            for name, values in history.items():
                self.history_.setdefault(name, []).extend(values)
            self.configs_.append(network.encoder.config)
            if number + 1 < len(levels):
                below, own = children[number], parents_first(level.Y)
                with show_progress(False):
                    others, train = (
                        rows._replace(proposed=propose(network, below, rows.tokens, proposals, rows.proposed, replace))
                        for rows, replace in ((others, None), (train, own))
                    )
        self.tensors_, self.precision_ = [_tensors(network) for network in networks], "float32"
        return Stack(networks, children, proposals)

    def _begin(
        self,
        encoder: Encoder,
        head: Head,
        level: Level,
        rows: TokenRows,
        longest: int,
        above: list[Network],
        copies: int = 0,
    ) -> Network:
        import torch

        from longtail.learners.neural.modules.network import Network
        from longtail.learners.neural.parallel import chosen_device

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(self.random_state))
            body = encoder.build(rows, longest)
            label_costs = LabelCosts(get_weighting(self.weighting), self.n_rows_, copies)
            network = Network(body, head.build(level, body, self.loss, label_costs), float(self.row_power))
        if above:
            body.load_state_dict(above[-1].encoder.state_dict())
            for own, other in shared_parameters(network.head, above[-1].head):
                own.data.copy_(other.data)
        size = 4 * sum(parameter.numel() for parameter in network.parameters())
        check_memory(_COPIES * size, "training", "labels, or a smaller encoder or head")
        return network.to(chosen_device(self.device))

    def _train_level(
        self,
        network: Network,
        train: _LevelRows,
        others: _LevelRows,
        group: ProcessGroup,
        described: tuple[object, ...],
    ) -> dict[str, list[float]]:
        from longtail.learners.neural.parallel import GroupCheckpoint
        from longtail.learners.neural.ranking import rank_level
        from longtail.learners.neural.training import TrainableNetwork

        model = TrainableNetwork(network, *train, self, group)
        known = column_counts(train.Y) > 0

        def evaluate_weights(weights: Weights) -> float:
            now = model.weights()
            try:
                model.load_weights(weights)
                with show_progress(False):
                    top = rank_level(network, others.tokens, 5, known, others.proposed)
                return group.first([evaluate(top, others.Y, ks=(5,))["nDCG@5"]])[0]
            finally:
                model.load_weights(now)

        described_apart = ("encoder", "head", "label_texts", "weighting")
        params = {name: value for name, value in self._model_params().items() if name not in described_apart}
        parts = [sorted(part.get_params().items()) for part in self._parts()]
        initial = (_numpy(part) for part in (*network.parameters(), *network.buffers()))
        tokens, Y = train.tokens, train.Y
        arrays: list[Array] = [tokens._indptr, tokens._ids, Y.indptr, Y.indices]
        arrays += [part.reshape(-1) for part in initial]
        fingerprint = digest_of((params, parts, described, Y.shape[1], group.size), arrays)
        epochs = int(self.epochs)
        with closing(model):
            best, history = fit(
                model,
                Schedule(epochs if Y.nnz else 0, int(self.patience), int(self.evals_per_epoch)),
                RunningAverage(math.ceil(float(self.average_from) * epochs)),
                evaluate_weights if len(others.tokens) else None,
                GroupCheckpoint(fingerprint, group),
                "training" if len(self.level_sizes_) == 1 else f"training level {described[0]}",
            )
            model.load_weights(best)
        del history["regularisation"]
        return history

    def _calibrate(self, stack: Stack, rows: TokenRows, Y: sp.csr_array) -> None:
        """Turn scores into log-odds by Platt scaling, and measure the recall of the stages before the last."""
        from longtail.learners.neural.ranking import rank, retrieved

        some = rows.take(np.arange(min(len(rows), _CALIBRATION_ROWS)))
        truth = Y[: len(some)]
        k = min(_CALIBRATION_CUTOFF, max(self.n_labels_, 1))
        self.slope_, self.offset_ = fit_platt(rank(stack, some, k, self._known(None)), truth, _LEAST_SLOPE)
        found = retrieved(stack, some)
        if found is not None and truth.nnz:
            top = TopK(found, np.zeros(found.shape, np.float32))
            self.recall_ = recall_of(top, truth)

    def _check_label_texts(self, n_labels: int) -> None:
        if self.label_texts is None:
            return
        if len(self.label_texts) != n_labels or not all(isinstance(text, str) for text in self.label_texts):
            raise InputError(
                f"label_texts has {len(self.label_texts)} texts, and there are {n_labels} labels: give one per label."
            )

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> TrainingCost:
        """Time a few steps of the training itself; in a tree, those of the first level for every level."""
        from longtail.learners.neural.training import TrainableNetwork
        from longtail.runtime.library_threads import one_torch_thread

        self._check_label_texts(Y.shape[1])
        learner = type(self)(**self.get_params(deep=False))
        learner.n_rows_ = int(Y.shape[0])
        rows = TokenRows(X)
        encoder, head = self._parts()
        levels = head.levels(rows, Y, self.label_texts, int(self.random_state))
        sample = np.random.default_rng(int(self.random_state)).permutation(len(rows))
        some = sample[: _PILOT_STEPS * int(self.batch_size)]
        with one_torch_thread(), show_progress(False):
            network = learner._begin(encoder, head, levels[0], rows, X.shape[1], [])
            model = TrainableNetwork(network, rows.take(some), levels[0].Y[some], None, self)
            with closing(model):
                model.start_epoch(0)  # runs the frozen layers
                seconds = time_steps(model, min(2, int(self.epochs)) * model.steps_per_epoch)
        size = sum(parameter.numel() for parameter in network.parameters()) * 4
        seconds_per_row = float(np.median(seconds[len(seconds) // 2 :]))  # the first epoch is slower
        n_rows, epochs = len(rows) * (1 - self.validation_fraction), int(self.epochs) * len(levels)
        steps = math.ceil(n_rows / int(self.batch_size)) * epochs
        return TrainingCost(
            seconds=seconds_per_row * n_rows * epochs,
            peak_memory_mb=(resident_memory() + _COPIES * size) / 1e6,
            model_mb=size / 1e6 * len(levels),
            block_mb=0.0,
            threads=thread_count(),
            exchanged_mb=2 * steps * size / 1e6,  # each node sends and gets about its size, twice
        )


def _tensors(network: Network) -> Tensors:
    return Tensors({name: _numpy(tensor) for name, tensor in network.state_dict().items()})


def _numpy(tensor: Any) -> Array:
    return np.array(tensor.detach().cpu().numpy())
