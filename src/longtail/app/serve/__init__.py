"""`longtail serve`: models behind an HTTP API, with a page to question them."""
