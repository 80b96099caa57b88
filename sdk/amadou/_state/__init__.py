"""What a key remembers: specs, state, and their encoding."""
