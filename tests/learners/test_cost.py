"""Estimated cost on several machines."""

from __future__ import annotations

import pytest

from longtail.learners.cost import TrainingCost

ONE = TrainingCost(1000.0, 900.0, 100.0, 50.0, 4, blocks=500, least_seconds=10.0, data_mb=1250.0)


def test_work_is_shared_and_data_are_sent():
    found = ONE.on_nodes(8)
    assert found.training_seconds == pytest.approx(1000 / 8)
    assert found.sending_seconds == pytest.approx(3 * 1.0), "three times one after the other, a second each"
    assert found.gathering_seconds == pytest.approx(0.08 + 0.4)
    assert found.seconds == pytest.approx(125 + 3 + 0.48)
    assert found.node_memory_mb == pytest.approx(250 + 1.5 * 1250 + 4 * 50 + 2 * 4 * 0.2)
    assert found.first_memory_mb == pytest.approx(250 + 1.5 * 1250 + 4 * 50 + 100)
    assert found.store_mb == pytest.approx(1250 + 1.6)
    assert found.network_mb == pytest.approx(7 * (1250 + 100 / 8))
    assert found.disk_mb == 200


def test_one_node_is_as_it_was():
    found = ONE.on_nodes(1)
    assert found.seconds == 1000
    assert (found.sending_seconds, found.gathering_seconds, found.network_mb) == (0, 0, 0)


def test_the_longest_piece_and_the_number_of_blocks_are_bounds():
    assert ONE.on_nodes(1000).training_seconds == 10
    few = TrainingCost(100.0, 0.0, 1.0, 1.0, 2, blocks=4, least_seconds=1.0)
    assert few.on_nodes(100).training_seconds == 50
    assert few.on_nodes(100).busy_threads == 4


def test_what_cannot_be_shared_is_not():
    alone = TrainingCost(100.0, 0.0, 1.0, 1.0, 2, data_mb=1000.0)
    assert alone.on_nodes(10).seconds == 100
    assert alone.on_nodes(10).network_mb == 0


def test_networks_exchange_gradients():
    network = TrainingCost(1000.0, 0.0, 100.0, 0.0, 2, data_mb=10.0, exchanged_mb=12_500.0)
    assert network.on_nodes(4).training_seconds == pytest.approx(250 + 10)


def test_several_trainings_one_after_the_other():
    twice = ONE.times(2, alone=5)
    assert (twice.seconds, twice.least_seconds, twice.blocks) == (2005, 25, 500)
    assert TrainingCost(10.0, 0.0, 1.0, 1.0, 2).times(3).least_seconds == 30
