"""What a designed accelerator is: its file, checks, technology, die, and itself as a device."""
