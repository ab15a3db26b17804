"""Architectures of Hugging Face configurations, one file each; see ``_family.Family``."""
