"""What every layer shares: errors, names, number formats, fixed-order numerics and predictions."""
