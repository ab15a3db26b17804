"""Layer 5: engines, KV cache and traffic: latency under load."""
