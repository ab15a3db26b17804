"""Kernels on matrix engines fed by software: TPU, Trainium and Inferentia, Gaudi, Ascend."""
