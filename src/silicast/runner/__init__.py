"""Many scenarios at once: lines of a batch over processes, and what an interrupted one goes on
from.
"""
