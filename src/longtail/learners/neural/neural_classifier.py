"""Neural learners over texts: an encoder, a head that scores labels, and a loss, trained together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import astuple
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from longtail.engine.augmentation import Augmentation, with_copies
from longtail.engine.checkpoint import Checkpoint
from longtail.engine.memory import check_room, parse_memory, resident_memory
from longtail.engine.pool import thread_count
from longtail.engine.portable import current_engine
from longtail.engine.progress import show_progress
from longtail.engine.tensors import Tensors
from longtail.engine.topk import TopK
from longtail.errors import InputError, MissingExtraError, ParameterError
from longtail.learners.checks import check_shares, check_whole
from longtail.learners.estimate import Estimate
from longtail.learners.held_out import split_rows
from longtail.learners.linear.training import digest_of
from longtail.learners.links import fit_link
from longtail.learners.neural.batches import TokenRows
from longtail.learners.neural.encoders import Encoder
from longtail.learners.neural.heads import Costing, Head, Level
from longtail.learners.neural.levels import parents_first, recall_of, shared_parameters, truths_of
from longtail.learners.neural.neural_ranker import NeuralRanker
from longtail.metrics import evaluate
from longtail.propensity.base import is_number
from longtail.weighting import Weighting, get_weighting

if TYPE_CHECKING:
    from longtail.learners.neural.modules.network import Network
    from longtail.learners.neural.parallel import Place
    from longtail.learners.neural.ranking import Stack
    from longtail.learners.neural.training import Proposed, Settings

LossName = Literal["bce", "grank", "margin", "negative-mining"]
Precision = Literal["float32", "bfloat16"]

_JUDGED_ROWS, _LINK_PLACES, _LEAST_SLOPE = 2000, 50, 0.01
_PILOT_STEPS = 4
_COPIES = 5  # weights, gradients, their means and squares, and the best weights so far


class NeuralClassifier(NeuralRanker):
    """Encode texts and score labels with networks that are trained end to end.

    Takes rows of tokens, as `Tokens` makes them of texts: inside of a `TextLearner`, which makes them by itself, it
    takes texts. Training and prediction need torch (``pip install 'longtail[neural]'``). Scores are log-odds.

    Parameters
    ----------
    encoder : Encoder, optional
        `Pretrained`, `BiLSTM`, `CNN` or `WordBag`; ``Pretrained("minilm")`` when left out.
    head : Head, optional
        `RankingHead`, `AttentionHead` or `AdaptiveHead`; ``RankingHead()`` when left out.
    loss : {"bce", "grank", "margin", "negative-mining"}
        Each label on its own; the true labels against the others as groups, of X-GRank; and the margin losses of GLaS.
    weighting : Weighting or str, optional
        Per-label costs, for instance ``PW()`` or ``"pw-cb"``, scaled so that their mean is 1; in each cluster of
        `AdaptiveHead` it is the number of clusters. Clusters of labels have costs of their own, from their own counts.
    row_power : float
        A row counts as its number of labels to this power: with 0 all rows count the same, with 1 a row with nine
        labels counts as nine rows with one.
    label_texts : sequence of str, optional
        A text for each label, for the heads that use them.
    passes : int
        Most passes over the rows.
    batch : int
        Rows of a step.
    at_once : int, optional
        Rows that are worked on at once, by one thread; a step adds up their gradients. 16 on a CPU and all of a step's
        rows on a GPU when left out.
    rate, head_rate : float
        Highest rates of the encoder and of the head.
    layer_decay : float
        Each layer of the encoder has the rate of the one above times this.
    weight_decay : float
    warm_up : float
        Share of the steps over which the rates rise; they fall to 0 over the others.
    clip : float
        Longest gradient of a step.
    held_out : float
        Share of the rows that are not trained on, by which weights are chosen and scores become log-odds; where they
        would be fewer than 20, none, and 2,000 at most.
    checks : int
        Looks at these rows in a pass.
    patience : int
        Checks without progress after which training ends.
    average_from : float
        Share of the passes after which weights are averaged over all checks to come (stochastic weight averaging); 1
        for never.
    keep_frozen : bool
        Whether the encoder's frozen layers run once over all rows, on a CPU, with the results in a temporary file of
        2 bytes x tokens x width, instead of in every pass.
    precision : {"float32", "bfloat16"}
        Of the matrix products while training.
    device : str
        "auto" for a GPU where there is one.
    seed : int
    threads : int, optional
        Threads on a CPU, all cores by default; the result is the same for any number.
    memory_limit : int or str, optional
        Refuse to train where the process would hold more.

    Attributes
    ----------
    history_ : dict of list
        Of each check: loss, gradient_norm, rows_per_second, and held_out, which is nDCG@5.
    recall_ : float
        Share of the true labels of rows held out that the retrieving stage, or the levels above the last, let through;
        1 where there is none.

    Examples
    --------
    >>> from longtail import TextLearner
    >>> from longtail.learners import CNN, NeuralClassifier
    >>> learner = NeuralClassifier(encoder=CNN(filters=8, hidden=16), passes=20, rate=0.01, head_rate=0.01, held_out=0)
    >>> texts, Y = ["a red car", "a blue bus"] * 8, [[1, 0], [0, 1]] * 8
    >>> TextLearner(learner=learner).fit(texts, Y).predict_topk(["a red car"], k=1).labels
    array([[0]], dtype=int32)
    """

    def __init__(
        self,
        *,
        encoder: Encoder | None = None,
        head: Head | None = None,
        loss: LossName = "bce",
        weighting: Weighting | str | None = None,
        row_power: float = 0.0,
        label_texts: Sequence[str] | None = None,
        passes: int = 10,
        batch: int = 32,
        at_once: int | None = None,
        rate: float = 1e-4,
        head_rate: float = 1e-3,
        layer_decay: float = 1.0,
        weight_decay: float = 0.01,
        warm_up: float = 0.1,
        clip: float = 1.0,
        held_out: float = 0.02,
        checks: int = 1,
        patience: int = 5,
        average_from: float = 1.0,
        keep_frozen: bool = True,
        precision: Precision = "float32",
        device: str = "auto",
        seed: int = 0,
        threads: int | None = None,
        memory_limit: int | str | None = None,
    ) -> None:
        self.encoder = encoder
        self.head = head
        self.loss = loss
        self.weighting = weighting
        self.row_power = row_power
        self.label_texts = label_texts
        self.passes = passes
        self.batch = batch
        self.at_once = at_once
        self.rate = rate
        self.head_rate = head_rate
        self.layer_decay = layer_decay
        self.weight_decay = weight_decay
        self.warm_up = warm_up
        self.clip = clip
        self.held_out = held_out
        self.checks = checks
        self.patience = patience
        self.average_from = average_from
        self.keep_frozen = keep_frozen
        self.precision = precision
        self.device = device
        self.seed = seed
        self.threads = threads
        self.memory_limit = memory_limit

    def _check_parameters(self) -> None:
        check_whole(self, passes=1, batch=1, checks=1, patience=1, seed=0)
        if self.at_once is not None:
            check_whole(self, at_once=1)
        for name in ("rate", "head_rate", "clip", "layer_decay"):
            value = getattr(self, name)
            if not (is_number(value) and 0 < value < math.inf):
                raise ParameterError(name, value, "must be a number above 0")
        if not (is_number(self.weight_decay) and 0 <= self.weight_decay < math.inf):
            raise ParameterError("weight_decay", self.weight_decay, "must be a number of at least 0")
        check_shares(self, "warm_up", "held_out")
        for name in ("average_from", "row_power"):
            value = getattr(self, name)
            if not (is_number(value) and 0 <= value <= 1):
                raise ParameterError(name, value, "must be a number from 0 to 1")
        for name, kind in (("encoder", Encoder), ("head", Head)):
            if getattr(self, name) is not None and not isinstance(getattr(self, name), kind):
                raise ParameterError(name, getattr(self, name), f"must be one of longtail's {name}s, or None")
        _require_torch()
        encoder, head = self._parts()
        encoder._check_parameters()
        head._check_parameters()
        if head.reads_places and not encoder.has_places:
            named = type(head).__name__
            raise ParameterError("encoder", encoder, f"must have states of places, at which {named} looks: use BiLSTM")
        if self.loss not in get_args(LossName):
            raise ParameterError("loss", self.loss, f"must be one of {', '.join(get_args(LossName))}")
        if self.loss not in head.losses:
            listed = ", ".join(head.losses)
            raise ParameterError("loss", self.loss, f"must be {listed} with the head {type(head).__name__}")
        if self.precision not in get_args(Precision):
            raise ParameterError("precision", self.precision, f"must be one of {', '.join(get_args(Precision))}")
        if not isinstance(self.keep_frozen, bool | np.bool_):
            raise ParameterError("keep_frozen", self.keep_frozen, "must be True or False")
        _check_device(self.device)
        if self.label_texts is not None and (isinstance(self.label_texts, str) or not head.reads_texts):
            if not head.reads_texts:
                raise ParameterError(
                    "label_texts", f"{len(self.label_texts)} texts", "must be None: the head reads none"
                )
            raise ParameterError("label_texts", self.label_texts, "must be a text for each label")
        get_weighting(self.weighting)
        thread_count(self.threads)
        if self.memory_limit is not None:
            parse_memory(self.memory_limit)

    def _fit(self, X: sp.csr_array, Y: sp.csr_array) -> None:
        self._train(X, Y, None)

    def _fit_augmented(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation) -> None:
        """Copy the rows that are trained on alone: a copy of a row that is held out would give it away."""
        self._train(X, Y, augmentation)

    def _train(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation | None) -> None:
        """Train here, or in all processes of a cluster."""
        self._check_label_texts(Y.shape[1])
        engine = current_engine()
        if engine is None:
            self._train_here(X, Y, augmentation)
        else:
            self.__dict__.update(engine.together(self, "_trained", (X, Y, augmentation)))

    def _trained(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation | None) -> dict[str, Any]:
        """Train, and give what was learnt."""
        self._train_here(X, Y, augmentation)
        return {name: value for name, value in vars(self).items() if name.endswith("_")}

    def _train_here(self, X: sp.csr_array, Y: sp.csr_array, augmentation: Augmentation | None) -> None:
        from longtail.engine.torch_threads import one_torch_thread
        from longtail.learners.neural.parallel import chosen_device, join

        share = min(float(self.held_out), _JUDGED_ROWS / Y.shape[0])
        chosen, held_out = split_rows(Y, self.label_counts_, share, int(self.seed))
        trained, labels = X[chosen], Y[chosen]
        if augmentation is not None:
            trained, labels = with_copies(trained, labels, augmentation)
        rows, others = TokenRows(trained), TokenRows(X[held_out])
        device = chosen_device(self.device)
        place = join(device)
        with one_torch_thread():
            stack = self._train_levels(rows, labels, others, Y[held_out], place, X.shape[1], augmentation)
            with show_progress(False):
                judged = (others, Y[held_out]) if len(held_out) else (rows, labels)
                self._link(stack, *judged)

    def _train_levels(
        self,
        rows: TokenRows,
        Y: sp.csr_array,
        others: TokenRows,
        truth: sp.csr_array,
        place: Place,
        longest: int,
        augmentation: Augmentation | None,
    ) -> Stack:
        """Train the networks one after the other, the highest level first; each begins with the encoder above it."""
        from longtail.learners.neural.ranking import Stack, propose

        encoder, head = self._parts()
        levels = head.levels(rows, Y, self.label_texts, int(self.seed), self.threads)
        truths = truths_of(levels, truth)
        self.levels_, self.level_sizes_ = [level.arrays for level in levels], [level.n_labels for level in levels]
        children = [*(level.children for level in levels[1:]), None]
        self.history_, self.recall_, self.configs_, self.tensors_ = {}, 1.0, [], []
        networks: list[Network] = []
        proposed: Proposed | None = None
        proposed_others: Proposed | None = None
        for number, level in enumerate(levels):
            copies = 0 if augmentation is None else augmentation.copies
            network = self._begin(encoder, head, level, rows, longest, networks, copies)
            networks.append(network)
            history = self._train_level(
                network,
                rows,
                level,
                proposed,
                others,
                truths[number],
                proposed_others,
                place,
                (number, longest, augmentation),
            )
            for name, values in history.items():
                self.history_.setdefault(name, []).extend(values)
            self.configs_.append(network.encoder.config)
            if number + 1 < len(levels):
                below = children[number]
                own = parents_first(level.Y)
                proposals = head.proposals()
                with show_progress(False):
                    proposed_others = propose(network, below, others, proposals, proposed_others, self.threads)
                    proposed = propose(network, below, rows, proposals, proposed, self.threads, own)
        self.tensors_, self.precision_ = [_tensors(network) for network in networks], "float32"
        return Stack(networks, children, head.proposals())

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
            torch.manual_seed(int(self.seed))
            body = encoder.build(rows, longest)
            costing = Costing(get_weighting(self.weighting), self.n_rows_, copies)
            network = Network(body, head.build(level, body, self.loss, costing), float(self.row_power))
        if above:
            body.load_state_dict(above[-1].encoder.state_dict())
            for own, other in shared_parameters(network.head, above[-1].head):
                own.data.copy_(other.data)
        size = 4 * sum(parameter.numel() for parameter in network.parameters())
        check_room(self.memory_limit, _COPIES * size, "training", "dimensions, or a smaller encoder")
        return network.to(chosen_device(self.device))

    def _train_level(
        self,
        network: Network,
        rows: TokenRows,
        level: Level,
        proposed: Proposed | None,
        others: TokenRows,
        truth: sp.csr_array,
        proposed_others: Proposed | None,
        place: Place,
        described: tuple[object, ...],
    ) -> dict[str, list[float]]:
        from longtail.learners.neural.fitting import Plan, fit_network
        from longtail.learners.neural.ranking import rank_level
        from longtail.learners.neural.training import Trainer

        trainer = Trainer(network, rows, level.Y, proposed, self._settings(), thread_count(self.threads), place)
        known = np.bincount(level.Y.indices, minlength=level.n_labels) > 0

        def measure() -> float:
            with show_progress(False):
                top = rank_level(network, others, 5, known, proposed_others, self.threads)
            return evaluate(top, truth, ks=(5,))["nDCG@5"]

        settings = (astuple(trainer.settings), self.held_out, self.checks, self.patience, self.average_from, self.loss)
        parts = [sorted(part.get_params().items()) for part in self._parts()]
        beginning = (_numpy(part) for part in (*network.parameters(), *network.buffers()))
        arrays = (rows._indptr, rows._ids, level.Y.indptr, level.Y.indices, *(part.reshape(-1) for part in beginning))
        checkpoint = Checkpoint(
            digest_of((settings, parts, described, level.n_labels, place.size), arrays), own=place.rank
        )
        plan = Plan(int(self.checks), int(self.patience), math.ceil(float(self.average_from) * int(self.passes)))
        name = "training" if len(self.level_sizes_) == 1 else f"training level {described[0]}"
        with closing(trainer):
            return fit_network(trainer, measure if len(others) else None, checkpoint, plan, name)

    def _settings(self) -> Settings:
        from longtail.learners.neural.optimising import Rates
        from longtail.learners.neural.training import Settings

        rates = Rates(
            encoder=float(self.rate),
            head=float(self.head_rate),
            layer_decay=float(self.layer_decay),
            weight_decay=float(self.weight_decay),
            warm_up=float(self.warm_up),
            clip=float(self.clip),
        )
        return Settings(
            batch=int(self.batch),
            at_once=None if self.at_once is None else int(self.at_once),
            passes=int(self.passes),
            rates=rates,
            keep_frozen=bool(self.keep_frozen),
            precision=self.precision,
            seed=int(self.seed),
        )

    def _link(self, stack: Stack, rows: TokenRows, Y: sp.csr_array) -> None:
        from longtail.learners.neural.ranking import rank, retrieved

        some = rows.some(np.arange(min(len(rows), _JUDGED_ROWS)))
        truth = Y[: len(some)]
        k = min(_LINK_PLACES, max(self.n_labels_, 1))
        self.slope_, self.offset_ = fit_link(rank(stack, some, k, self._known(None), self.threads), truth, _LEAST_SLOPE)
        found = retrieved(stack, some, self.threads)
        if found is not None and truth.nnz:
            top = TopK(found, np.zeros(found.shape, np.float32))
            self.recall_ = recall_of(top, truth)

    def _check_label_texts(self, n_labels: int) -> None:
        if self.label_texts is None:
            return
        if len(self.label_texts) != n_labels or not all(isinstance(text, str) for text in self.label_texts):
            raise InputError(
                f"label_texts has {len(self.label_texts)} texts, and there are {n_labels} labels: one each."
            )

    def _estimate(self, X: sp.csr_array, Y: sp.csr_array) -> Estimate:
        """From a few steps of the training itself; in a tree, of its first level, as often as there are levels."""
        from longtail.engine.torch_threads import one_torch_thread
        from longtail.learners.neural.parallel import Place
        from longtail.learners.neural.training import Trainer

        self._check_label_texts(Y.shape[1])
        learner = type(self)(**self.get_params(deep=False))
        learner.n_rows_ = int(Y.shape[0])
        rows = TokenRows(X)
        encoder, head = self._parts()
        levels = head.levels(rows, Y, self.label_texts, int(self.seed), self.threads)
        threads = thread_count(self.threads)
        some = np.random.default_rng(int(self.seed)).permutation(len(rows))[: _PILOT_STEPS * int(self.batch)]
        with one_torch_thread(), show_progress(False):
            network = learner._begin(encoder, head, levels[0], rows, X.shape[1], [])
            trainer = Trainer(network, rows.some(some), levels[0].Y[some], None, self._settings(), threads, Place())
            seconds = []
            with closing(trainer):
                trainer.prepare()
                for progress in trainer.run(0):
                    seconds.append(progress.seconds / progress.rows)
                    if len(seconds) == 2 * trainer.steps_a_pass:  # the first pass is slower
                        break
        size = sum(parameter.numel() for parameter in network.parameters()) * 4
        a_row = float(np.median(seconds[len(seconds) // 2 :]))
        steps = math.ceil(len(rows) * (1 - self.held_out) / int(self.batch)) * int(self.passes) * len(levels)
        return Estimate(
            seconds=a_row * len(rows) * int(self.passes) * (1 - self.held_out) * len(levels),
            peak_memory_mb=(resident_memory() + _COPIES * size) / 1e6,
            model_mb=size / 1e6 * len(levels),
            block_mb=0.0,
            threads=threads,
            exchanged_mb=2 * steps * size / 1e6,  # each node sends and gets about its size, twice
        )


def _tensors(network: Network) -> Tensors:
    return Tensors({name: _numpy(tensor) for name, tensor in network.state_dict().items()})


def _numpy(tensor: Any) -> npt.NDArray[Any]:
    return np.array(tensor.detach().cpu().numpy())


def _check_device(device: object) -> None:
    import torch

    try:
        is_there = isinstance(device, str) and (device == "auto" or torch.device(device) is not None)
    except (RuntimeError, TypeError):
        is_there = False
    if is_there and str(device) not in ("auto", "cpu"):
        wanted = torch.device(str(device))
        is_there = wanted.type == "cuda" and (wanted.index or 0) < torch.cuda.device_count()
    if not is_there:
        raise ParameterError("device", device, "must be auto, cpu, or a GPU that is there, such as cuda:0")


def _require_torch() -> None:
    if find_spec("torch") is None:
        raise MissingExtraError("A neural learner", "neural")
