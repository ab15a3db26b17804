"""Names of a scenario into what they stand for: engines, pools, programs, calibrations."""
