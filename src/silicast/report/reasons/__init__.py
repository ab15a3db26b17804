"""Why an answer is what it is, and why two differ."""
