"""What a traced run would take on another device."""
