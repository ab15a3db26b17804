"""Training configurations of other tools as scenarios: one module a tool."""

from silicast.formats.training_configs.reader import (
    is_training_config,
    missing_of,
    read_training_config,
)

__all__ = ["is_training_config", "missing_of", "read_training_config"]
