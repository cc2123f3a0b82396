"""Experiments in which the truth is known."""
