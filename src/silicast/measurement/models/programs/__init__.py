"""The models that are measured, one file each; PyTorch and nothing else."""
