"""Encoders: what they give doesn't depend on the padding, and pretrained ones of every family run."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

torch = pytest.importorskip("torch", reason="the networks are trained with torch")
transformers = pytest.importorskip("transformers", reason="the pretrained encoders come with transformers")

from longtail import TextLearner  # noqa: E402
from longtail.errors import InputError, ParameterError  # noqa: E402
from longtail.features import Tokens  # noqa: E402
from longtail.features.word_vectors import convert_vectors  # noqa: E402
from longtail.learners import CNN, BiLSTM, NeuralClassifier, Pretrained, WordBag  # noqa: E402
from longtail.learners.neural.batches import TokenRows, bucketed, by_length  # noqa: E402
from longtail.learners.neural.frozen import FrozenStates  # noqa: E402
from longtail.learners.neural.modules.encoder import Dropout, dropout_generator  # noqa: E402

TEXTS = ["red fish and blue fish", "one", "two cars and a bus, all of them red, were here", "", "a bus"]
SHAPE = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
CONFIGS = {
    "bert": lambda size: transformers.BertConfig(vocab_size=size, max_position_embeddings=40, **SHAPE),
    "roberta": lambda size: transformers.RobertaConfig(
        vocab_size=size, max_position_embeddings=42, pad_token_id=1, bos_token_id=0, eos_token_id=2, **SHAPE
    ),
    "xlnet": lambda size: transformers.XLNetConfig(
        vocab_size=size, d_model=16, n_layer=3, n_head=2, d_inner=24, pad_token_id=5
    ),
}


@pytest.fixture(scope="module", params=list(CONFIGS))
def pretrained(request, tmp_path_factory):
    """A tiny encoder with random weights, and a tokenizer of its family's kind, as a directory."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    directory = tmp_path_factory.mktemp(request.param)
    plain = ("red", "fish", "and", "blue", "one", "two", "cars", "a", "bus", "all", "of")
    words = ["<s>", "<pad>", "</s>", "<unk>", "<cls>", "<extra>", *plain]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    first, last = ("$A </s> <cls>", ("<cls>", 4)) if request.param == "xlnet" else ("<s> $A </s>", ("<s>", 0))
    tokenizer.post_processor = processors.TemplateProcessing(single=first, special_tokens=[last, ("</s>", 2)])
    pad = {"bert": "<s>", "roberta": "<pad>", "xlnet": "<extra>"}[request.param]
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", pad_token=pad)
    fast.save_pretrained(directory)
    torch.manual_seed(0)
    transformers.AutoModel.from_config(CONFIGS[request.param](len(words))).save_pretrained(directory)
    return request.param, str(directory)


def encoders(known):
    rows = TokenRows(known)
    yield CNN(n_filters=5, kernel_sizes=(2, 3), pool_chunks=3, hidden_size=7).build(rows, 16)
    yield BiLSTM(hidden_size=4).build(rows, 16)
    yield WordBag(embedding_dim=6).build(rows, 16)


def test_a_bag_is_tf_idf_times_the_vectors():
    """scikit-learn's smooth idf and sublinear counts, rows of length 1."""
    from sklearn.feature_extraction.text import TfidfTransformer

    X = rows_of(TEXTS)
    rows = TokenRows(X)
    encoder = WordBag(embedding_dim=6).build(rows, 16).eval()
    weights = TfidfTransformer(sublinear_tf=True).fit_transform(rows.bags())
    wanted = np.maximum(weights @ encoder.words.table.weight.detach().numpy()[:-1], 0)
    batch = rows.batch(np.arange(5), 0)
    with torch.no_grad():
        np.testing.assert_allclose(encoder(*batch).vector, wanted, atol=1e-6)
        np.testing.assert_allclose(encoder.plain()(*batch).vector, wanted, atol=1e-6)
        unknown = encoder(*TokenRows(rows_of(["something else", "else red"])).batch(np.arange(2), 0)).vector
    assert not unknown[0].any()  # words that no training row had
    red = rows_of(["red"])
    with torch.no_grad():
        np.testing.assert_allclose(unknown[1], encoder(*TokenRows(red).batch(np.arange(1), 0)).vector[0], atol=1e-6)


@pytest.mark.parametrize(
    "kind", [CNN(n_filters=5, hidden_size=7, dropout=0), BiLSTM(hidden_size=4, dropout=0), WordBag(embedding_dim=6)]
)
def test_a_step_changes_the_vectors_of_its_own_words_alone(kind):
    """Their gradients are sparse, and the same as dense ones would be."""
    rows = TokenRows(rows_of(TEXTS))
    encoder = clone(kind).build(rows, 16)
    encoder.eval()
    (table,) = encoder.tables()
    batch = rows.batch(np.arange(2), 0)
    found = torch.autograd.grad(encoder(*batch).vector.square().sum(), table)[0]
    assert found.is_sparse
    encoder.words.table.sparse = False
    wanted = torch.autograd.grad(encoder(*batch).vector.square().sum(), table)[0]
    assert not wanted.is_sparse
    torch.testing.assert_close(found.to_dense(), wanted)
    of_others = np.setdiff1d(np.arange(len(table) - 1), encoder.words.rows(batch[0])[batch[1]])
    assert len(of_others)
    assert not wanted[of_others].any()
    assert not clone(kind).set_params(train_vectors=False).build(rows, 16).tables()


def rows_of(texts, **params):
    tokens = Tokens(max_length=16, **params).fit(TEXTS)
    return tokens.transform(texts)


def test_padding_changes_nothing():
    X = rows_of(TEXTS)
    for encoder in encoders(X):
        encoder.eval()
        tokens, mask = TokenRows(X).batch(np.arange(5), 0)
        with torch.no_grad():
            together = encoder(tokens, mask)
            for row in range(5):
                alone = encoder(*TokenRows(X[[row]]).batch(np.zeros(1, np.int64), 0))
                n = int(together.mask[row].sum())
                np.testing.assert_allclose(alone.vector[0], together.vector[row], rtol=1e-5, atol=1e-6)
                np.testing.assert_allclose(alone.states[0, :n], together.states[row, :n], rtol=1e-5, atol=1e-6)


def test_padding_changes_nothing_for_pretrained_encoders(pretrained):
    family, directory = pretrained
    tokens = Tokens(tokenizer=directory, max_length=12).fit(TEXTS)
    X = tokens.transform(TEXTS)
    encoder = Pretrained(directory, layers=2).build(TokenRows(X), 12).eval()
    assert encoder.vector_width == 32
    ids, mask = TokenRows(X).batch(np.arange(5), encoder.padding)
    with torch.no_grad():
        together = encoder(ids, mask)
        alone = [encoder(*TokenRows(X[[row]]).batch(np.zeros(1, np.int64), encoder.padding)) for row in range(5)]
        whole = encoder.model(ids[[2]], output_hidden_states=True).hidden_states
    for row in range(5):
        np.testing.assert_allclose(alone[row].vector[0], together.vector[row], rtol=1e-4, atol=1e-5)
    place = -1 if family == "xlnet" else 0  # row 2 has no padding
    wanted = torch.cat([whole[-2][0, place], whole[-1][0, place]])
    np.testing.assert_allclose(together.vector[2], wanted, rtol=1e-4, atol=1e-5)
    last = int(ids[2, place])
    assert last == {"xlnet": 4}.get(family, 0)  # what stands there is the [CLS] token


def test_pretrained_encoders_train_and_come_back(pretrained, tmp_path):
    from longtail import Model

    _, directory = pretrained
    learner = NeuralClassifier(
        encoder=Pretrained(directory, layers=2, pooling="mean"),
        epochs=12,
        learning_rate=1e-2,
        head_learning_rate=1e-2,
        batch_size=4,
    )
    texts, Y = ["red fish", "blue bus", "a red fish", "one blue bus"], [[1, 0], [0, 1], [1, 0], [0, 1]]
    fitted = TextLearner(learner=learner).set_params(features__max_length=8).fit(texts, Y)
    assert fitted.score(texts, Y) == 1.0
    Model(fitted).save(tmp_path / "model")
    assert any(file.suffix == ".safetensors" for file in (tmp_path / "model").iterdir())
    again = Model.load(tmp_path / "model", verify=True)
    np.testing.assert_array_equal(again.predict_topk(texts, 2).scores, fitted.predict_topk(texts, 2).scores)
    with pytest.raises(ParameterError, match="max_length must be at most") if "xlnet" not in directory else _nothing():
        TextLearner(learner=learner).set_params(features__max_length=64).fit(texts, Y)


def _nothing():
    from contextlib import nullcontext

    return nullcontext()


def test_frozen_layers_stay(pretrained):
    _, directory = pretrained
    X = Tokens(tokenizer=directory, max_length=12).fit_transform(TEXTS)
    encoder = Pretrained(directory, freeze=2).build(TokenRows(X), 12)
    layers = encoder.layers()
    assert len(layers) == 4
    assert [any(part.requires_grad for part in layer) for layer in layers] == [False, False, False, True]
    before = [part.detach().clone() for layer in layers[:3] for part in layer]
    Y = sp.csr_array(np.eye(5, 3, dtype=np.float32))
    fitted = NeuralClassifier(
        encoder=Pretrained(directory, freeze=2), epochs=2, learning_rate=0.1, validation_fraction=0
    ).fit(X, Y)
    after = fitted._stack().networks[0].encoder.layers()
    for one, other in zip(before, (part for layer in after[:3] for part in layer), strict=True):
        np.testing.assert_array_equal(one, other.detach())
    assert any(not torch.equal(a, b) for a, b in zip(layers[3], after[3], strict=True))


@pytest.mark.parametrize(("freeze", "layers"), [(1, 2), (2, 3), (3, 1), (3, 3)])
def test_what_frozen_layers_made_is_enough_for_the_others(pretrained, freeze, layers):
    family, directory = pretrained
    X = Tokens(tokenizer=directory, max_length=12).fit_transform(TEXTS)
    rows = TokenRows(X)
    encoder = Pretrained(directory, freeze=freeze, layers=layers).build(rows, 12).train()
    assert encoder.is_split == (family != "xlnet")
    if not encoder.is_split:
        return
    ids, mask = rows.batch(np.array([2, 0, 4]), encoder.padding)
    with torch.no_grad(), dropout_generator(torch.Generator().manual_seed(1)):
        once = encoder.below(ids, mask)
        assert all(torch.equal(one, other) for one, other in zip(once, encoder.below(ids, mask), strict=True))
        kept = FrozenStates(encoder, rows).batch(np.array([2, 0, 4]))
        encoder.eval()
        whole = encoder(ids, mask)
        parted, read = encoder.above(once, mask), encoder.above(kept, mask)
    np.testing.assert_allclose(parted.vector, whole.vector, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(parted.states[mask], whole.states[mask], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(read.vector, whole.vector, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_keeping_what_frozen_layers_made_hardly_changes_the_training(pretrained, precision):
    _, directory = pretrained
    X = Tokens(tokenizer=directory, max_length=12).fit_transform(TEXTS)
    Y = sp.csr_array(np.eye(5, 3, dtype=np.float32))
    learner = NeuralClassifier(
        encoder=Pretrained(directory, freeze=2), epochs=4, learning_rate=0.01, batch_size=2, validation_fraction=0
    )
    learner.set_params(precision=precision)
    kept = learner.fit(X, Y).history_["loss"]
    again = clone(learner).set_params(n_jobs=1).fit(X, Y).history_["loss"]
    plain = clone(learner).set_params(cache_frozen=False).fit(X, Y).history_["loss"]
    np.testing.assert_array_equal(again, kept)
    np.testing.assert_allclose(plain, kept, rtol=0.02)


def test_an_encoder_that_is_not_there_is_a_sentence(tmp_path):
    with pytest.raises(InputError, match="can't be loaded"):
        Tokens(tokenizer=str(tmp_path)).fit(["a"])
    with pytest.raises(InputError, match="is not a directory"):
        Pretrained(str(tmp_path / "nowhere")).build(TokenRows(sp.csr_array((1, 4))), 4)


def test_tokens_of_another_tokenizer_are_refused(pretrained):
    X = sp.csr_array(np.array([[1, 999]], np.float32))
    with pytest.raises(InputError, match="the token 998"):
        NeuralClassifier(encoder=Pretrained(pretrained[1])).fit(X, [[1]])


def test_word_vectors_are_where_training_begins(tmp_path):
    (tmp_path / "glove.txt").write_text("fish 1 2 3\nbus 4 5 6\nunused 7 8 9\n")
    assert convert_vectors(tmp_path / "glove.txt", tmp_path / "glove.npz") == (3, 3)
    path = str(tmp_path / "glove.npz")
    encoder = BiLSTM(vectors=path, hidden_size=4, train_vectors=False)
    tokens = encoder.tokens()
    X = tokens.fit_transform(TEXTS)
    module = encoder.build(TokenRows(X), 16).eval()
    row = tokens.transform(["fish bus unused unknown"])
    with torch.no_grad():
        ids, mask = TokenRows(row).batch(np.zeros(1, np.int64), 0)
        found = module.words(ids, mask)[0]
    np.testing.assert_array_equal(found[:2], [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(found[2], found[3])  # not in the training texts, so as unknown as the other
    assert not module.words.table.weight.requires_grad


def test_empty_batches_and_buckets():
    lengths = np.random.default_rng(0).integers(0, 50, 999)
    batches = bucketed(lengths, 8, np.random.default_rng(1))
    assert sorted(np.concatenate(batches).tolist()) == list(range(999))
    assert np.mean([np.ptp(lengths[rows]) for rows in batches]) < 3
    assert sorted(np.concatenate(by_length(lengths, 10)).tolist()) == list(range(999))
    tokens, mask = TokenRows(sp.csr_array((2, 5))).batch(np.arange(2), 7)
    np.testing.assert_array_equal(tokens, [[7], [7]])
    assert mask.all()


def test_dropout_is_sampled_from_the_generator_of_the_thread():
    layer, values = Dropout(0.5), torch.ones(1000)
    assert torch.equal(layer(values), values)  # nothing to draw from
    drawn = []
    for seed in (1, 1, 2):
        with dropout_generator(torch.Generator().manual_seed(seed)):
            drawn.append(layer(values))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert set(drawn[0].tolist()) == {0.0, 2.0}
    with dropout_generator(torch.Generator().manual_seed(1)):
        assert torch.equal(layer.eval()(values), values)
