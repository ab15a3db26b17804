"""One file a method of search."""
