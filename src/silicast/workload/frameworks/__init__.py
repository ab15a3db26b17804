"""How frameworks run a model's code: eager, compiled, in mixed precision."""
