"""Answers as people read them: numbers with units, tables, the why tree, Markdown pages.

Nothing here predicts: every number stands in an answer or in the catalog already, and is only
scaled to a unit and rounded.
"""
