"""Fleets whose number of replicas changes in time."""
