"""What the ranks of a plan hold, send and share."""
