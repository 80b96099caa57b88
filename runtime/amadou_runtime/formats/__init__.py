"""How documents, bytes, errors and log lines are written, and read if they may come from somebody else."""
