"""What a job says before it runs: its stages, ports, connectors and state."""
