"""Plugins that ship with amadou. These plugins use only the public API of `amadou`, like any third-party plugin."""
