"""The kernel ops of the contract: one file per group says which columns each op takes and how a
table becomes an op. A new op is one entry of ``OPS`` in such a file.
"""
