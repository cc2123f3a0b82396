"""Where work runs: threads, Ray, progress, memory, mapped arrays, finished blocks, checkpoints and signals."""
