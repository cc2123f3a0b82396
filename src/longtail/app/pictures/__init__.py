"""Pictures that the commands draw: each a function that takes results and gives a matplotlib Figure."""
