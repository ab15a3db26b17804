"""Corrections of the analytic kernel models, learned from measured kernels over dimensionless
features: sums of oblivious trees, trained and evaluated by this package alone.
"""
