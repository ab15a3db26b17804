"""Policies of a cluster's scheduler: one file each."""
