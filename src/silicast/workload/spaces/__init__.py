"""Spaces of architectures that a search chooses from, each one file."""

from silicast.workload.spaces.space import ArchitectureSpace, space_named, spaces

__all__ = ["ArchitectureSpace", "space_named", "spaces"]
