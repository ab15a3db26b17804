"""Task ``workflow``: stages over pools."""
