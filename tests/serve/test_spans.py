"""Words found in a text are those that the features were made of, where they stand."""

from hypothesis import example, given
from hypothesis import strategies as st

from longtail import Tfidf
from longtail.errors import InputError
from longtail.serve.spans import find_places, in_utf16, share_out, utf16_places, words

LETTERS = st.text(st.sampled_from("aBcÉéßΣσςİıĳ𝐀Ωж中9_ .,-'\u0307\n"), max_size=60)


@given(st.one_of(LETTERS, st.text(max_size=60)), st.booleans())
@example("İSTANBUL ΟΔΟΣ", True)
@example("ΟΔΟΣ aİ İa", False)
def test_the_same_words_as_the_features(text, lowercase):
    try:
        features = set(Tfidf(min_df=1, lowercase=lowercase, idf="none").fit([text]).feature_names())
    except InputError:
        features = set()
    found = words(text, lowercase=lowercase)
    assert {word.term for word in found} == features
    for word in found:
        read = text[word.start : word.end]
        assert 0 <= word.start < word.end <= len(text)
        assert word.term in (read.lower() if lowercase else read) or "Σ" in read
    assert [word.start for word in found] == sorted(word.start for word in found)


def test_a_word_in_several_places_shares_its_contribution():
    text = "red car, RED bus"
    parts = [("red", 1.0), ("bus", -2.0), ("tram", 3.0)]
    spans = share_out(find_places(words(text), {"red", "bus", "tram"}), parts)
    assert [(text[span.start : span.end], span.contribution) for span in spans] == [
        ("red", 0.5),
        ("RED", 0.5),
        ("bus", -2.0),
    ]


@given(st.text(max_size=30))
def test_utf_16_counts_as_javascript_does(text):
    found = words(text)
    terms = {word.term for word in found}
    spans = share_out(find_places(found, terms), [(term, 1.0) for term in terms])
    units = text.encode("utf-16-le", "surrogatepass")
    for plain, wide in zip(spans, in_utf16(utf16_places(text), spans), strict=True):
        read = units[2 * wide.start : 2 * wide.end].decode("utf-16-le", "surrogatepass")
        assert read == text[plain.start : plain.end]


def test_a_word_in_too_many_places_is_shown_in_the_first_ones():
    spans = share_out(find_places(words("red " * 50), {"red"}, most=3), [("red", 1.0)])
    assert [(span.start, span.contribution) for span in spans] == [(0, 0.02), (4, 0.02), (8, 0.02)]
