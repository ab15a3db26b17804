"""Many predictions beside each other: prices, the least that fits, and who carries what."""
