"""Numbers that the papers printed, one file a paper; `longtail.app.reproduce.papers` reads them."""
