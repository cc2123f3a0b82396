"""Numba kernels that several learners share: arrays in, arrays out."""
