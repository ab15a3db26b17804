"""Device memory of a deployment, and what to do where it does not suffice."""
