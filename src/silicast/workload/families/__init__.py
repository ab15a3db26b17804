"""Families of models: reads the tables of ``catalog/families`` and the configurations they fit."""
