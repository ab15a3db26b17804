"""Pipeline schedules: in which order each rank runs its forward and backward passes."""
