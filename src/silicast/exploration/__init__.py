"""Many predictions beside each other: prices, the least that fits, who carries what; and searches
over spaces of designs: methods that propose, and the front of the best.
"""
