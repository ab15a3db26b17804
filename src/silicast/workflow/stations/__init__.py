"""What jobs run on: one file a kind of station."""
