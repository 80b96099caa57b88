"""What connects a job to systems: sources, sinks, codecs and secrets."""
