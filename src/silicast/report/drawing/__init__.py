"""Drawings, pages, tables in files, and how numbers look."""
