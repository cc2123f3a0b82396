"""Tests that run inside an Annif installation: `make annif-test`."""
