"""Commands that start servers: how they are written, and what those of users mean."""

from silicast.formats.server_launches.reader import is_server_launch, read_server_launch

__all__ = ["is_server_launch", "read_server_launch"]
