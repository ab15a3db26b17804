"""Other ways to predict a kernel, made again from their papers, to stand beside ours on the same
rows: one file a way.
"""
