"""The papers' tables and figures beside the results of longtail's recipes on available data sets."""
