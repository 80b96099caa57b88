"""What a plugin hears of a run."""
