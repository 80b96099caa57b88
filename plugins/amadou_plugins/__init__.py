"""What ships with amadou and could have come from anyone else: built on the public names of `amadou` alone."""
