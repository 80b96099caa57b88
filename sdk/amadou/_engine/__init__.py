"""What only engines import."""
