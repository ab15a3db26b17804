"""Chakra traces replayed on predicted devices, and written."""
