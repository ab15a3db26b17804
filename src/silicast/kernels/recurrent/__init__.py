"""Recurrent token mixers: linear attention and state spaces."""
