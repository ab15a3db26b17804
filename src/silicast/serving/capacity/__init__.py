"""How much a deployment carries: room, objectives, the knee, numbers of replicas."""
