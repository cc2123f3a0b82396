"""Search over recipes and their parameters within a time budget, and the Pareto front of its results."""
