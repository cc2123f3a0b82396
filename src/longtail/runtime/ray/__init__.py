"""Work on a Ray cluster: blocks as tasks, and distributed training of networks."""
