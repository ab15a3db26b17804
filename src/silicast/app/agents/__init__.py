"""Tools for agents that plan deployments, over the Model Context Protocol."""
