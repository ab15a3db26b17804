"""The scorecard: predictions against measured rows that nothing was fitted on."""
