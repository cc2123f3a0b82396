"""Bundled data sets, each with its source in SOURCE.txt."""
