import numpy as np
import pytest

from longtail.learners import Popularity
from tests.learners.contract import MatrixContract


class TestPopularity(MatrixContract):
    def make(self, **params):
        return Popularity(**params)

    def test_ranks_by_share_of_all_rows(self):
        Y = [[0, 1, 1, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
        top = Popularity().fit(np.ones((4, 1)), Y).predict_topk(np.zeros((2, 1)), 3)
        assert top.labels.tolist() == [[1, 2, -1]] * 2
        assert top.scores.tolist() == [[0.75, 0.5, -np.inf]] * 2

    def test_ties_go_to_the_lower_id(self):
        Y = [[1, 1, 1, 1], [0, 1, 0, 1]]
        assert Popularity().fit(np.ones((2, 1)), Y).predict_topk([[0]], 4).labels.tolist() == [[1, 3, 0, 2]]

    def test_decides_on_what_most_rows_have(self):
        Y = [[1, 1, 0], [1, 0, 0], [1, 1, 1], [0, 0, 0]]
        learner = Popularity().fit(np.ones((4, 1)), Y)
        assert learner.predict([[0]]).toarray().tolist() == [[1, 0, 0]]
        assert learner.predict([[0]], min_score=0.25).toarray().tolist() == [[1, 1, 0]]

    def test_shares_of_many_rows_stay_in_order(self):
        Y = np.zeros((1000, 3))
        Y[:500, 0] = Y[:501, 1] = Y[:499, 2] = 1
        top = Popularity().fit(np.ones((1000, 1)), Y).predict_topk([[0]], 3)
        assert top.labels.tolist() == [[1, 0, 2]]
        assert top.scores[0] == pytest.approx([0.501, 0.5, 0.499])
