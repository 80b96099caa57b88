"""Plugins that ship with amadou and that anyone could have written: they use only the public names of `amadou`."""
