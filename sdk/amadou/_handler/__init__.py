"""What an author writes: handlers, and what their callbacks receive and declare."""
