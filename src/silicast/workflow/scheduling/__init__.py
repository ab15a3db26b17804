"""Jobs that share the devices of a cluster in time, under a policy."""
