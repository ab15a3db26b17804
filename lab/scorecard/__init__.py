"""The scorecard: predictions against measured rows that nothing was fitted on.

Not part of the wheel: it needs the measured tables, which are not published with the package.
"""
