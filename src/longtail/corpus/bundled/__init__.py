"""Data sets that come with the package; each has a SOURCE.txt that says where it is from."""
