"""A run from its start to its stop, whatever the engine: its files, lease, history, dead letters and warnings."""
