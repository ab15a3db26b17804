"""The KV cache: blocks, prefixes, the host's tier."""
