"""Objects as JSON and back: numbers and text as they are, everything else as an object with one tag.

=============  ==========================================================================================
``"object"``   short name of a class, with ``"params"`` and, when fitted, ``"state"``
``"array"``    an ndarray: its file, dtype and shape
``"sparse"``   "csr" or "csc", with shape and the three arrays
``"texts"``    a long list of texts: its file
``"names"``    an array of text, such as names of features: its file
``"tensors"``  arrays by name: their file
``"tuple"``    a tuple's items
``"dict"``     a dictionary with text keys
``"float"``    "nan", "inf" or "-inf", which JSON lacks
=============  ==========================================================================================
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from longtail.config import WithJobs
from longtail.data.hierarchy import Hierarchy
from longtail.errors import ModelError
from longtail.runtime.tensors import Tensors
from longtail.store.files import FileReader, FileWriter
from longtail.store.registry import class_of, name_of

_LONG_LIST = 32
_SPARSE = {
    ("csr", True): sp.csr_array,
    ("csc", True): sp.csc_array,
    ("csr", False): sp.csr_matrix,
    ("csc", False): sp.csc_matrix,
}


def stored_attributes(cls: type[Any]) -> list[str]:
    """Return the fitted attributes of a class that are saved: `_stored` of the class and of its base classes."""
    names = (name for base in reversed(cls.__mro__) for name in vars(base).get("_stored", ()))
    return list(dict.fromkeys(names))


def encode(value: Any, name: str, files: FileWriter) -> Any:
    """Return a value as JSON; arrays and long lists of text are written to files named after `name`."""
    if value is None or isinstance(value, bool | int | str):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, float | np.floating):
        value = float(value)
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, np.bool_ | np.integer):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.hasobject and all(isinstance(item, str) for item in value):
        return {"names": files.texts(name, value.tolist())}
    if isinstance(value, np.ndarray):
        return _encode_array(value, name, files)
    if sp.issparse(value):
        return _encode_sparse(value, name, files)
    if isinstance(value, list) and len(value) > _LONG_LIST and all(isinstance(item, str) for item in value):
        return {"texts": files.texts(name, value)}
    if isinstance(value, list | tuple):
        items = [encode(item, f"{name}.{index}", files) for index, item in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, Tensors):
        return {"tensors": files.tensors(name, value)}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {
            "dict": {key: encode(item, f"{name}.{index}", files) for index, (key, item) in enumerate(value.items())}
        }
    if (hasattr(value, "get_params") and not isinstance(value, type)) or isinstance(value, Hierarchy):
        return _encode_object(value, name, files)
    raise ModelError(
        f"{name} is a {type(value).__name__}, which a model can't hold: "
        "use numbers, text, arrays, or objects with get_params."
    )


def decode(value: Any, files: FileReader) -> Any:
    """Return the value that `encode` was given."""
    if isinstance(value, list):
        return [decode(item, files) for item in value]
    if not isinstance(value, dict):
        return value
    if "object" in value:
        return _decode_object(value, files)
    if "array" in value:
        return files.array(value["array"], value["dtype"], value["shape"])
    if "sparse" in value:
        return _decode_sparse(value, files)
    if "texts" in value:
        return files.texts(value["texts"])
    if "names" in value:
        return np.array(files.texts(value["names"]), dtype=object)
    if "tensors" in value:
        return files.tensors(value["tensors"])
    if "tuple" in value:
        return tuple(decode(value["tuple"], files))
    if "dict" in value:
        return {key: decode(item, files) for key, item in value["dict"].items()}
    if "float" in value:
        return float(value["float"])
    raise ModelError(f"The model contains a value of the unknown kind {next(iter(value), '')!r}: upgrade longtail.")


def _encode_array(array: Any, name: str, files: FileWriter) -> dict[str, Any]:
    if array.dtype.hasobject:
        raise ModelError(f"{name} is an array of Python objects, which a model can't contain: use numbers.")
    return {"array": files.array(name, array), "dtype": array.dtype.str, "shape": list(array.shape)}


def _encode_sparse(matrix: Any, name: str, files: FileWriter) -> dict[str, Any]:
    is_array = isinstance(matrix, sp.sparray)
    if (matrix.format, is_array) not in _SPARSE:
        raise ModelError(f"{name} is a sparse matrix in {matrix.format} form: convert it to csr or csc first.")
    return {
        "sparse": matrix.format,
        "is_array": is_array,
        "canonical": bool(matrix.has_canonical_format),
        "shape": list(matrix.shape),
        **{
            part: _encode_array(np.asarray(getattr(matrix, part)), f"{name}.{part}", files)
            for part in ("data", "indices", "indptr")
        },
    }


def _decode_sparse(value: dict[str, Any], files: FileReader) -> Any:
    data, indices, indptr = (decode(value[part], files) for part in ("data", "indices", "indptr"))
    matrix: Any = _SPARSE[value["sparse"], value["is_array"]](tuple(value["shape"]), dtype=data.dtype)
    # Passing the three arrays to the constructor may read and copy them; set like this they stay mapped.
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    matrix.check_format(full_check=False)
    if value["canonical"]:
        matrix.has_canonical_format = True
    return matrix


def _encode_object(value: Any, name: str, files: FileWriter) -> dict[str, Any]:
    cls = type(value)
    encoded: dict[str, Any] = {"object": name_of(cls)}
    encoded["params"] = {key: encode(item, f"{name}.{key}", files) for key, item in _params_of(value).items()}
    state = {key: getattr(value, key) for key in stored_attributes(cls) if hasattr(value, key)}
    if state:
        encoded["state"] = {key: encode(item, f"{name}.{key}", files) for key, item in state.items()}
    return encoded


def _params_of(value: Any) -> dict[str, Any]:
    if isinstance(value, WithJobs):
        return value._model_params()
    return dict(vars(value)) if isinstance(value, Hierarchy) else value.get_params(deep=False)


def _decode_object(value: dict[str, Any], files: FileReader) -> Any:
    """Recreate an object; parameters and attributes that its class doesn't have are an error."""
    cls = class_of(value["object"])
    params, state = value["params"], value.get("state", {})
    unknown = [*(params.keys() - inspect.signature(cls).parameters), *(state.keys() - stored_attributes(cls))]
    if unknown:
        raise ModelError(
            f"The model contains a {value['object']} with {min(unknown)}, which this version of longtail doesn't "
            "know: upgrade longtail, or train the model again."
        )
    made = cls(**{key: decode(item, files) for key, item in params.items()})
    for key, item in state.items():
        setattr(made, key, decode(item, files))
    return made
