"""The machine at hand: its properties, its state, drafts of its device file."""
