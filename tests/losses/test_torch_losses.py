"""Losses against slow, obvious references."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the networks are trained with torch")

from longtail.losses import TORCH_LOSSES, GRank, Logistic, gated_logistic_loss, grank_loss, logistic_loss  # noqa: E402

MARGIN, N_HARD_NEGATIVES = 1.0, 10  # by default


@pytest.fixture
def drawn():
    rng = np.random.default_rng(0)
    scores = rng.normal(scale=3, size=(6, 9))
    truth = (rng.random((6, 9)) < 0.3).astype(np.float64)
    truth[0, :], truth[1, :] = 0, 1  # a row without labels, and one with all
    counted = rng.random((6, 9)) < 0.8
    counted |= truth > 0
    costs = rng.uniform(0.2, 5, 9)
    return scores, truth, counted, costs


def by_hand(name, scores, truth, counted, costs):
    rows = []
    for s, y, use in zip(scores, truth, counted, strict=True):
        own = [j for j in range(len(s)) if use[j] and y[j]]
        others = [j for j in range(len(s)) if use[j] and not y[j]]
        if name == "logistic":
            terms = [costs[j] * np.log1p(np.exp(-s[j])) for j in own] + [np.log1p(np.exp(s[j])) for j in others]
            rows.append(np.mean(terms))
        elif name == "grank":
            product = sum(np.exp(s[j]) for j in others) * sum(costs[j] * np.exp(-s[j]) for j in own)
            rows.append(np.log1p(product))
        elif name == "softmax":
            total = sum(np.exp(s[j]) for j in [*own, *others])
            rows.append(np.mean([-costs[j] * np.log(np.exp(s[j]) / total) for j in own]) if own else 0.0)
        else:
            total = 0.0
            for j in own:
                violations = sorted((max(0, s[i] - s[j] + MARGIN) for i in others), reverse=True)
                total += costs[j] * sum(violations[: N_HARD_NEGATIVES if name == "negative-mining" else None])
            rows.append(total / max(len(own), 1))
    return np.array(rows)


@pytest.mark.parametrize("name", TORCH_LOSSES)
@pytest.mark.parametrize("with_costs", [False, True])
@pytest.mark.parametrize("with_counted", [False, True])
def test_losses_are_what_their_equations_say(name, with_costs, with_counted, drawn):
    scores, truth, counted, costs = drawn
    use = counted if with_counted else np.ones_like(counted)
    weights = costs if with_costs else np.ones_like(costs)
    tensors = [torch.from_numpy(part) for part in (scores, truth)]
    found = TORCH_LOSSES[name](
        *tensors, torch.from_numpy(counted) if with_counted else None, torch.from_numpy(costs) if with_costs else None
    )
    np.testing.assert_allclose(found, by_hand(name, scores, truth, use, weights), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", TORCH_LOSSES)
def test_gradients_are_numeric_derivatives(name, drawn):
    scores, truth, counted, costs = drawn
    leaf = torch.from_numpy(scores).requires_grad_()
    others = torch.from_numpy(truth), torch.from_numpy(counted), torch.from_numpy(costs)
    assert torch.autograd.gradcheck(lambda s: TORCH_LOSSES[name](s, *others).sum(), (leaf,), eps=1e-7, atol=1e-5)


def test_the_groups_of_grank_have_gradients_of_equal_sum(drawn):
    """Equation (6): gradients of the negatives add up to s / (1 + s), those of the positives to minus that."""
    scores, truth, _, _ = drawn
    leaf = torch.from_numpy(scores).requires_grad_()
    grank_loss(leaf, torch.from_numpy(truth), None, None).sum().backward()
    gradient = leaf.grad.numpy()
    product = (np.exp(scores) * (1 - truth)).sum(axis=1) * (np.exp(-scores) * truth).sum(axis=1)
    np.testing.assert_allclose((gradient * (1 - truth)).sum(axis=1), product / (1 + product), atol=1e-9)
    np.testing.assert_allclose((gradient * truth).sum(axis=1), -product / (1 + product), atol=1e-9)


def test_no_score_is_too_large():
    scores = torch.tensor([[1e4, -1e4, 3e4], [-1e4, 1e4, 0.0]], requires_grad=True)
    truth = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 1.0]])
    for loss in (logistic_loss, grank_loss):
        value = loss(scores, truth, None, None).sum()
        value.backward()
        assert torch.isfinite(value)
        assert torch.isfinite(scores.grad).all()


def test_losses_agree_with_those_of_numpy(drawn):
    scores, truth, _, costs = drawn
    tensors = [torch.from_numpy(part) for part in (scores, truth)]
    value, slope = GRank().value_and_gradient(scores, truth, costs)
    leaf = tensors[0].clone().requires_grad_()
    found = grank_loss(leaf, tensors[1], None, torch.from_numpy(costs))
    found.sum().backward()
    np.testing.assert_allclose(found.detach(), value, rtol=1e-9)
    np.testing.assert_allclose(leaf.grad, slope, rtol=1e-7, atol=1e-12)
    logistic = Logistic()
    signed = np.where(truth > 0, scores, -scores)
    plain = logistic.value(signed)
    np.testing.assert_allclose(logistic_loss(*tensors, None, None), plain.mean(axis=1), rtol=1e-9)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_reductions_of_the_logistic_loss(reduction, drawn):
    scores, truth, counted, costs = map(torch.from_numpy, drawn)
    each = logistic_loss(scores, truth, None, costs, reduction="none") * counted
    wanted = {"none": each, "sum": each.sum(dim=1), "mean": each.sum(dim=1) / counted.sum(dim=1)}[reduction]
    torch.testing.assert_close(logistic_loss(scores, truth, counted, costs, reduction=reduction), wanted)


def test_the_probability_behind_a_gate_is_a_product(drawn):
    scores, truth, counted, costs = drawn
    gates = np.linspace(-2, 2, 6)[:, None]
    p = 1 / (1 + np.exp(-gates)) / (1 + np.exp(-scores))
    each = np.where(truth > 0, -costs * np.log(p), -np.log1p(-p))
    tensors = map(torch.from_numpy, (gates, scores, truth, counted, costs))
    found = gated_logistic_loss(*tensors)
    np.testing.assert_allclose(found, (each * counted).sum(axis=1) / counted.sum(axis=1))


def test_losses_are_imported_without_torch():
    code = "import sys, longtail.losses; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"
