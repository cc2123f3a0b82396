"""`longtail serve`: an HTTP API for models, with a web page."""
