"""What mappings move, take and cost, counted exactly."""
