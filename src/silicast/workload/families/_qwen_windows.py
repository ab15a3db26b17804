"""Sliding windows of Qwen models."""

from __future__ import annotations

from silicast.workload.families._family import Fields


def qwen_windows(fields: Fields, layers: int) -> tuple[int, ...]:
    """Layers from ``max_window_layers`` on see a window, if ``use_sliding_window`` is set."""
    if not fields.flag("use_sliding_window", default=False):
        return ()
    window = fields.integer("sliding_window", default=4096)
    first = fields.integer("max_window_layers", default=28)
    windows = tuple(window if layer >= first else 0 for layer in range(layers))
    return windows if any(windows) else ()
