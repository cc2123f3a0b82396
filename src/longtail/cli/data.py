"""`longtail data`: the data sets known by name, and tools for files of data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from longtail.cli.arguments import check_not_input, read
from longtail.cli.console import guarded, named_as, note, output, output_table, step
from longtail.cli.options import DataSource, Seed
from longtail.errors import counted
from longtail.runtime.disk import check_out_file

data = typer.Typer(help="List, check, describe and convert data sets.", no_args_is_help=True)


@data.command("list")
@guarded
def list_data_sets() -> None:
    """List the data sets known by name."""
    from longtail.datasets import describe, names

    known = [describe(name) for name in names()]
    rows = [
        [
            info.name,
            info.task,
            "bundled" if info.bundled else "to fetch",
            f"{info.train_rows:,}",
            f"{info.test_rows:,}",
            "text" if info.features is None else f"{info.features:,}",
            f"{info.labels:,}",
            "{:g},{:g}".format(*info.propensity),
        ]
        for info in known
    ]
    columns = ["name", "rows and labels", "", "train rows", "test rows", "features", "labels", "A,B"]
    output_table("Data sets", columns, rows, text_columns=3)
    for source in dict.fromkeys(info.source for info in known if not info.bundled):
        output(f"To fetch: {source}")


@data.command()
@guarded
def vectors(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="Word vectors: GloVe or word2vec text, also compressed, JSON or .npy.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help=".npz file to write.", show_default=False)],
) -> None:
    """Convert word vectors for networks over words: --set encoder.vectors=OUT."""
    check_out_file(out, ".npz", name="OUT")
    with step("converting word vectors", outcome="Nothing was written."):
        from longtail.features.word_vectors import convert_vectors

        check_not_input(source, out)
        words, dimensions = convert_vectors(source, out)
    output(f"Wrote {words:,} words of {dimensions:,} dimensions to {out}.")


@data.command()
@guarded
def generate(
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="File to write: .txt (also .gz, .xz) or .npz.", show_default=False)
    ],
    rows: Annotated[int, typer.Option(min=1, help="Number of rows.")] = 10_000,
    labels: Annotated[int, typer.Option(min=1, help="Number of labels.")] = 1000,
    features: Annotated[int, typer.Option(min=1, help="Number of features.")] = 5000,
    labels_per_row: Annotated[float, typer.Option(help="Mean labels per row.")] = 5.0,
    features_per_row: Annotated[float, typer.Option(help="Mean features per row.")] = 30.0,
    exponent: Annotated[float, typer.Option(help="Exponent of the power law of label frequencies.")] = 0.9,
    test_out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write test rows too, a tenth of --rows.", show_default=False)
    ] = None,
    seed: Seed = 0,
) -> None:
    """Generate a synthetic data set with a long tail of labels, to measure speed and memory."""
    outs = [path for path in (out, test_out) if path is not None]
    with step("generating", outcome="Nothing was written."):
        from longtail.data import generate as make
        from longtail.data import save
        from longtail.errors import InputError

        if test_out is not None and _is_same_file(out, test_out):
            raise InputError("is both OUT and --test-out: give two files.", path=test_out)
        for path in outs:
            check_out_file(path, name="OUT" if path is out else "--test-out")
            if ".jsonl" in path.suffixes:
                raise InputError("is for texts, and synthetic rows are features: write .txt or .npz.", path=path)
        with named_as(
            n_rows="--rows", n_labels="--labels", n_features="--features", labels_per_row="--labels-per-row",
            features_per_row="--features-per-row", exponent="--exponent",
        ):  # fmt: skip
            made = make(
                rows,
                labels,
                features,
                labels_per_row=labels_per_row,
                features_per_row=features_per_row,
                exponent=exponent,
                random_state=seed,
                test_rows=max(rows // 10, 1) if test_out else 0,
            )
        parts = made if isinstance(made, tuple) else (made,)
        for path, dataset in zip(outs, parts, strict=True):
            save(dataset, path)
    for path, dataset in zip(outs, parts, strict=True):
        note(f"Wrote {counted(dataset.n_rows, 'row')} to {path}.")


def _is_same_file(one: Path, other: Path) -> bool:
    """Return whether two paths are the same file; for .npz, the same pair of files."""
    from longtail.data.readers.npz import npz_prefix

    if one.exists() and other.exists() and one.samefile(other):
        return True
    names = [npz_prefix(path) if path.suffix == ".npz" else path for path in (one.resolve(), other.resolve())]
    return one.suffix == other.suffix and names[0] == names[1]


@data.command()
@guarded
def verify(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the data set.", show_default=False)],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The downloaded file.", show_default=False)],
) -> None:
    """Check a downloaded file against the published rows, features and labels."""
    with step(f"reading {path}"):
        from longtail.datasets import verify as check

        found = check(name, path)
    features = "" if found.features is None else f"{found.features:,} features, "
    output(
        f"{path} is {found.name}, {found.split}: {found.rows:,} rows, {features}{found.labels:,} labels, "
        f"{found.labels_per_row:.2f} labels per row, as published."
    )


@data.command()
@guarded
def stats(source: DataSource) -> None:
    """Describe a data set: its size and its label frequencies."""
    import numpy as np

    dataset = read(source, labels_optional=True)
    counts = dataset.label_counts
    seen = np.sort(counts[counts > 0])[::-1]
    per_row = np.diff(dataset.Y.indptr)
    figures: list[tuple[str, str]] = [("rows", f"{dataset.n_rows:,}")]
    if dataset.X is not None:
        figures += [
            ("features", f"{dataset.X.shape[1]:,}"),
            ("features per row", f"{dataset.X.nnz / max(dataset.n_rows, 1):.2f}"),
        ]
    if dataset.texts is not None:
        figures.append(("characters per row", f"{sum(map(len, dataset.texts)) / max(dataset.n_rows, 1):,.1f}"))
    figures += [
        ("labels", f"{dataset.n_labels:,}"),
        ("labels without a row", f"{int((counts == 0).sum()):,}"),
        ("labels per row", f"{dataset.Y.nnz / max(dataset.n_rows, 1):.2f}"),
        ("rows without labels", f"{int((per_row == 0).sum()):,}"),
    ]
    if len(seen):
        head = int(np.searchsorted(np.cumsum(seen), 0.8 * seen.sum())) + 1
        figures += [
            ("rows per label, mean", f"{seen.mean():.2f}"),
            ("rows per label, median", f"{np.median(seen):g}"),
            ("rows of the most frequent label", f"{int(seen[0]):,}"),
            ("labels with 1 row", f"{int((seen == 1).sum()):,}"),
            ("labels with 5 rows or fewer", f"{int((seen <= 5).sum()):,}"),
            ("labels that make up 80 % of all occurrences", f"{head:,}"),
        ]
    output_table(source, ["", ""], [list(figure) for figure in figures])


@data.command()
@guarded
def convert(
    source: DataSource,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="File to write: .txt, .jsonl (each also .gz, .xz, .zst) or .npz; a name without "
            "extension is a directory of arrays, for data larger than memory. The name determines the format.",
            show_default=False,
        ),
    ],
) -> None:
    """Write a data set in another format."""
    with step("converting", outcome="Nothing was written."):
        from longtail.data.readers.formats import convert as write
        from longtail.data.readers.formats import is_directory_name
        from longtail.data.readers.mapped import check_mapped_target
        from longtail.data.readers.npz import npz_prefix

        if is_directory_name(out) and str(out) != "-":
            check_mapped_target(out)
        else:
            check_out_file(out, name="OUT")
        check_not_input(source, out)
        rows = write(source, out)
    written = str(out)
    if out.suffix == ".npz":
        prefix = npz_prefix(out)
        written = f"{prefix}.X.npz and {prefix}.Y.npz"
    note(f"Wrote {counted(rows, 'row')} to {written}.")
