"""The tests: one directory per room, and the ones that take a whole node (cli, e2e)."""
