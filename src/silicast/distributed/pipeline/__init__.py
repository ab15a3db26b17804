"""Pipelines: chunks of layers, when each action runs, what holds it up."""
