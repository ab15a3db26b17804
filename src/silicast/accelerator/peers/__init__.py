"""Other tools that are installed beside us, asked for the same layer: one module a tool."""
