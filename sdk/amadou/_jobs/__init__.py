"""What an author puts a handler into: jobs, stages and parameters."""
