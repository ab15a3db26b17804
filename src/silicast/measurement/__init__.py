"""Measurements from outside: reading tables of them, whatever their file format."""
