"""Modules of torch: encoders of texts, heads that score labels, and their losses."""
