"""Several cores that differ: their memories, the links between them, and graphs mapped onto all."""
