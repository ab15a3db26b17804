"""Step predictors in the form that simulators of engines call or read, one file each."""
