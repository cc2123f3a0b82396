"""Clusters of labels by the tokens of their rows, with the partitioning of the label trees."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from longtail.data.sparse import column_counts
from longtail.kernels.types import Int32, Int64
from longtail.learners.label_trees.partition import partition_labels
from longtail.learners.label_trees.representation import represent_labels
from longtail.learners.neural.batches import TokenRows

_N_COMPONENTS = 64


class LabelClusters(NamedTuple):
    """The cluster of each label, -1 for labels without a row, and the labels of each cluster, padded with -1."""

    of_label: Int64
    labels: Int64

    def counts(self, Y: sp.csr_array) -> Int64:
        """Return the number of rows of each cluster."""
        found: Int64 = np.diff(self.indicator(Y).tocsc().indptr).astype(np.int64)
        return found

    def indicator(self, Y: sp.csr_array) -> sp.csr_array:
        """Return the clusters of each row as a 0/1 matrix."""
        n, k = Y.shape[0], len(self.labels)
        found = sp.csr_array((np.ones(Y.nnz, np.float32), self.of_label[Y.indices], Y.indptr), shape=(n, k))
        found.sum_duplicates()
        found.data[:] = 1
        return found


def cluster_labels(rows: TokenRows, Y: sp.csr_array, size: int, seed: int) -> LabelClusters:
    """Partition the labels into balanced clusters of at most `size` labels with similar rows."""
    bags = _bags(rows)
    lengths = np.sqrt(np.asarray(bags.multiply(bags).sum(axis=1)).ravel())
    scales = np.divide(1.0, lengths, out=np.zeros(len(lengths)), where=lengths > 0)
    points = represent_labels("centroids", bags, Y, scales, n_components=_N_COMPONENTS, random_state=seed)
    known = np.flatnonzero(column_counts(Y))
    tree = partition_labels(points, known, arity=2, leaf_size=size, random_state=seed)
    _, cluster = np.unique(tree.nodes, return_inverse=True)
    return clusters_of(tree.labels, cluster, Y.shape[1])


def clusters_of(labels: Int32, cluster: Int64, n_labels: int) -> LabelClusters:
    """Return the clusters, given the cluster of each of some labels."""
    of_label = np.full(n_labels, -1, np.int64)
    of_label[labels] = cluster
    counts = np.bincount(cluster)
    order = np.lexsort((labels, cluster))
    begins = np.cumsum(counts) - counts
    members = np.full((len(counts), int(counts.max(initial=1))), -1, np.int64)
    members[cluster[order], np.arange(len(order)) - begins[cluster[order]]] = labels[order]
    return LabelClusters(of_label, members)


def _bags(rows: TokenRows) -> sp.csr_array:
    """Tf-idf of the tokens of each row."""
    bags = rows.bags()
    holders = column_counts(bags)
    idf = np.log(bags.shape[0] / np.maximum(holders, 1))
    weighed = ((1 + np.log(bags.data)) * idf[bags.indices]).astype(np.float32)
    return sp.csr_array((weighed, bags.indices, bags.indptr), shape=bags.shape)
