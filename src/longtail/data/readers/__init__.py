"""Readers and writers of data sets, one file per format."""
