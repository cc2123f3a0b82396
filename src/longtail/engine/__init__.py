"""Where work runs: kernels, the thread pool, progress bars and top-k selection."""
