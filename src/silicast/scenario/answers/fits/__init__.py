"""Task ``fits``: which models fit a device, or which devices a model, in which format, how fast."""
