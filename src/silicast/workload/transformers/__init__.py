"""Transformers as graphs: decoders, encoders, layers of experts, for one rank of a plan."""
