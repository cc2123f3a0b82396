"""Numbers that the papers printed, one file a paper; `longtail.reproduce.papers` reads them."""
