"""The papers' tables and figures beside what longtail's recipes give on the data sets that are at hand."""
