"""What runtimes of whole networks do to neighbouring operators, found by timing."""
