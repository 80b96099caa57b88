"""Savepoints: their files, and the state in them."""
