"""What training adds to a graph: gradients, recomputation, updates."""
