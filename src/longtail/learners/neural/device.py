"""Check of the device."""

from __future__ import annotations

from longtail.errors import ParameterError


def check_device(device: object) -> None:
    """Raise a ParameterError for a device that is not available."""
    import torch

    try:
        is_there = isinstance(device, str) and (device == "auto" or torch.device(device) is not None)
    except (RuntimeError, TypeError):
        is_there = False
    if is_there and str(device) not in ("auto", "cpu"):
        wanted = torch.device(str(device))
        is_there = wanted.type == "cuda" and (wanted.index or 0) < torch.cuda.device_count()
    if not is_there:
        raise ParameterError("device", device, "must be auto, cpu, or an available GPU, such as cuda:0")
