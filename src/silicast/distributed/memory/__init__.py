"""Memory of training on each rank."""
