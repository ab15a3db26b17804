"""Stages over pools, with joins, branches, loops and chance, on the event core of serving."""
