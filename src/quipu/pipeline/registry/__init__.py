"""A schema registry's client, and a small registry of our own."""
