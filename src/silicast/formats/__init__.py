"""Files of other tools: one source, one access to fields, one reader of tables, and their formats.

What is read here is plain: text, tables and rows. What a measurement, a design or a plan is made of
it stands in the package of that, as an adapter.
"""
