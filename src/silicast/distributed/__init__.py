"""Work of many devices: plans, schedules, and traces of what their ranks run."""
