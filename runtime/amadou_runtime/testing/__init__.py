"""`TestRun`, traces, the pytest plugin, and rehearsals."""
