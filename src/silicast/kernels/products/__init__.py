"""Matrix products: shapes, tiles, choice of tiles, times."""
