"""longtail against Annif with Omikuji: same texts, same subjects, same machine, alternating runs.

Run it in Annif's environment (`make annif-test` creates .venv-annif). Both train on the same documents. Subjects of the
test documents are then suggested by Annif's Python interface in batches of 32, with Omikuji and with longtail in it;
by longtail's model itself; and by `longtail serve` with that model, over HTTP on loopback, many texts per request.
Annif's REST interface and commands use the same code.
"""

from __future__ import annotations

import argparse
import http.client
import json
import lzma
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
TEXTS_A_REQUEST = 64
PROJECTS = """[omikuji]
name=Omikuji
language=en
backend=omikuji
analyzer=snowball(english)
vocab=subjects
min_df=2

[longtail]
name=longtail
language=en
backend=longtail
vocab=subjects
recipe=dismec
"""


def main() -> int:
    """Train both, measure in turns, write the results and print the table."""
    options = _options()
    train, test = (_read(options.data / f"{part}.jsonl.xz", options.rows) for part in ("train", "test"))
    test = test[: options.documents]
    with tempfile.TemporaryDirectory() as folder:
        made_punkt = _punkt(Path(folder), [text for text, _ in train[:500]])
        projects = _projects(Path(folder), train, test)
        corpora = {name: _corpus(project, train) for name, project in projects.items()}
        rows: dict[str, dict[str, Any]] = {}
        for name, project in projects.items():
            start = time.perf_counter()
            project.train(corpora[name], jobs=options.threads)
            rows[name] = {"system": f"Annif, {name}", "train_seconds": time.perf_counter() - start, "seconds": []}
        model = projects["longtail"].backend._model
        model.learner.set_params(learner__n_jobs=options.threads)
        rows["model"] = {"system": "longtail's model", "seconds": []}
        rows["served"] = {"system": f"longtail serve, {TEXTS_A_REQUEST} texts a request", "seconds": []}
        texts = [text for text, _ in test]
        model.save(Path(folder) / "model")
        with _server(options.serve_python, Path(folder) / "model", options.threads) as port:
            for _ in range(options.repeat):
                for name, row in rows.items():
                    start = time.perf_counter()
                    if name == "model":
                        found = [[name for name, _ in labels] for labels in model.predict_names(texts, k=5)]
                    elif name == "served":
                        found = _answered(port, texts)
                    else:
                        found = _suggested(projects[name], texts)
                    row["seconds"].append(time.perf_counter() - start)
                    row["P@1"], row["P@5"] = _precision(found, test)
    reference = min(rows["omikuji"]["seconds"])
    for row in rows.values():
        row["documents_per_second"] = len(test) / min(row["seconds"])
        row["ratio"] = reference / min(row["seconds"])
    lines = ["| system | train s | documents per second | times as fast | P@1 | P@5 |", "|---|---|---|---|---|---|"]
    for row in rows.values():
        trained = f"{row['train_seconds']:.1f}" if "train_seconds" in row else "-"
        lines.append(
            f"| {row['system']} | {trained} | {row['documents_per_second']:.0f} | {row['ratio']:.1f} "
            f"| {100 * row['P@1']:.2f} | {100 * row['P@5']:.2f} |"
        )
    sizes = f"{len(train):,} training documents, {len(test):,} to suggest for"
    head = f"{options.data.name}: {sizes}, {options.threads} threads, best of {options.repeat}."
    if made_punkt:
        head += (
            " NLTK's sentence data could not be downloaded, so Annif split sentences by parameters that NLTK's own "
            "trainer learned from 500 of the training documents."
        )
    text = "\n".join([head, "", *lines, ""])
    results = HERE / "results" / "annif.json"
    results.write_text(json.dumps({"data": options.data.name, "rows": list(rows.values())}, indent=1) + "\n")
    results.with_suffix(".md").write_text(text)
    print(text)
    return 0


def _read(path: Path, most: int | None) -> list[tuple[str, list[str]]]:
    with lzma.open(path, "rt") as file:
        rows = [json.loads(line) for _, line in zip(range(most or 10**9), file, strict=False)]
    return [(row["text"], row["labels"]) for row in rows]


def _punkt(folder: Path, texts: list[str]) -> bool:
    """Make sure that Annif's analysers find NLTK's sentence data; tells whether they had to be learned here."""
    import nltk
    from nltk.tokenize.punkt import PunktTrainer, save_punkt_params

    try:
        nltk.data.find("tokenizers/punkt_tab")
    except LookupError:
        if nltk.download("punkt_tab", quiet=True):
            return False
        place = folder / "nltk" / "tokenizers" / "punkt_tab" / "english"
        place.mkdir(parents=True)
        trainer = PunktTrainer()
        trainer.train("\n".join(texts), finalize=True)
        save_punkt_params(trainer.get_params(), str(place))
        nltk.data.path.insert(0, str(folder / "nltk"))
        return True
    return False


def _uri(name: str) -> str:
    return f"http://example.org/{name.replace(' ', '_')}"


def _projects(folder: Path, train: list[Any], test: list[Any]) -> dict[str, Any]:
    """Both projects, with the vocabulary loaded."""
    os.environ["ANNIF_DATADIR"] = str(folder / "data")
    import annif.registry
    from annif.vocab import VocabFileTSV

    import longtail.annif  # noqa: F401 - which adds the backend

    names = sorted({name for _, labels in (*train, *test) for name in labels})
    (folder / "vocab.tsv").write_text("".join(f"<{_uri(name)}>\t{name}\n" for name in names))
    (folder / "projects.cfg").write_text(PROJECTS)
    registry = annif.registry.AnnifRegistry(str(folder / "projects.cfg"), str(folder / "data"), False)
    registry.get_vocab("subjects").load_vocabulary(VocabFileTSV(str(folder / "vocab.tsv"), "en"))
    return {name: registry.get_project(name) for name in ("omikuji", "longtail")}


def _corpus(project: Any, rows: list[tuple[str, list[str]]]) -> Any:
    from annif.corpus import Document, SubjectSet
    from annif.corpus.types import DocumentCorpus

    subjects = project.subjects

    class Rows(DocumentCorpus):
        @property
        def documents(self) -> Any:
            for text, labels in rows:
                ids = [subjects.by_uri(_uri(label)) for label in labels]
                yield Document(text=text, subject_set=SubjectSet(ids))

    return Rows()


def _suggested(project: Any, texts: list[str]) -> list[list[str]]:
    """The five best subjects of each text, in batches as Annif's own commands make them."""
    from annif.corpus import Document

    found = []
    for start in range(0, len(texts), 32):
        batch = project.suggest(
            [Document(text=text) for text in texts[start : start + 32]], {project.backend.name: {"limit": 5}}
        )
        array = batch.array
        for row in range(array.shape[0]):
            part = slice(array.indptr[row], array.indptr[row + 1])
            best = array.indices[part][np.argsort(-array.data[part], kind="stable")[:5]]
            found.append([project.subjects[number].uri for number in best])
    return found


@contextmanager
def _server(python: str, model: Path, threads: int) -> Iterator[int]:
    """Run `longtail serve` with one model on loopback; returns its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    command = [python, "-m", "longtail", "serve", f"model={model}", "--port", str(port), "--threads", str(threads)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + 120
            while not _is_ready(port):
                if process.poll() is not None or time.monotonic() > until:
                    raise SystemExit("longtail serve did not start: give --serve-python an environment with it.")
                time.sleep(0.1)
            yield port
        finally:
            process.terminate()


def _is_ready(port: int) -> bool:
    try:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        client.request("GET", "/readyz")
        return client.getresponse().status == 200
    except OSError:
        return False


def _answered(port: int, texts: list[str]) -> list[list[str]]:
    """The five best subjects of each text, over one connection."""
    client, found = http.client.HTTPConnection("127.0.0.1", port, timeout=60), []
    for start in range(0, len(texts), TEXTS_A_REQUEST):
        body = json.dumps({"texts": texts[start : start + TEXTS_A_REQUEST], "k": 5})
        client.request("POST", "/v1/predict", body, {"content-type": "application/json"})
        answer = client.getresponse()
        data = json.loads(answer.read())
        if answer.status != 200:
            raise SystemExit(f"longtail serve: {data}")
        found += [[label["name"] for label in row["predictions"]] for row in data["results"]]
    client.close()
    return found


def _precision(found: list[list[str]], test: list[tuple[str, list[str]]]) -> tuple[float, float]:
    hits = np.zeros((len(test), 5))
    for row, ((_, labels), ranked) in enumerate(zip(test, found, strict=True)):
        true = {_uri(label) for label in labels}
        for place, uri in enumerate(ranked[:5]):
            hits[row, place] = uri in true
    return float(hits[:, 0].mean()), float(hits.mean())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data" / "eurlex57k")
    parser.add_argument("--rows", type=int, default=None, help="number of training documents; all by default")
    parser.add_argument("--documents", type=int, default=6000, help="number of test documents")
    parser.add_argument("--serve-python", default=sys.executable, help="interpreter that has longtail[serve]")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
