"""What other tools measured, as records: one module a tool, found by what its files hold."""
