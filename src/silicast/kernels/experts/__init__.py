"""Experts of mixture-of-experts layers: routing, grouped products, exchange of tokens."""
