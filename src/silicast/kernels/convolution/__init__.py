"""Convolutions of images, forward and backward."""
