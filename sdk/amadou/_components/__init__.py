"""What a window or join is made of."""
