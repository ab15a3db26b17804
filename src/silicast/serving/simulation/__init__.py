"""The event loop: replicas, schedulers, routers, speculation, sharing."""
