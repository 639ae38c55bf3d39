"""Nodes that end without warning, in the middle of their work."""
