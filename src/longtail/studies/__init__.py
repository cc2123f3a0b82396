"""Experiments with known true labels."""
