"""Whole passes: static batches, programs, a framework's pass, a training step of one device."""
