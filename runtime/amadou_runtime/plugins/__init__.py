"""Loads plugins, and calls their hooks."""
