"""Devices, hosts and clusters: datasheet facts with their sources, loaded from the catalog."""
