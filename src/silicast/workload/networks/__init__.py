"""Networks beside language models, as graphs of fixed sizes: image encoders and diffusion."""
