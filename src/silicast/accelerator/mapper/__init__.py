"""The search for the best mapping of work onto a design."""
