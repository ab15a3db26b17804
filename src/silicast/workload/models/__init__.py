"""Models: their structure, files, weights and number formats."""
