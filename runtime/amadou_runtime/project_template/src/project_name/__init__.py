"""Counts events per key and minute."""
