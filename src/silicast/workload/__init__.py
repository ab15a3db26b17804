"""What is to be computed: ops, graphs, and the front ends that make them; no devices, no times."""
