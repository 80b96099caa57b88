"""Plugins that ship with amadou. Like any third-party plugin, they use only the public API of `amadou`."""
