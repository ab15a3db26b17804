"""Attention: heads that share keys, latent and sparse attention, forward and backward."""
