"""The error that ends a command with a message for the user."""


class CommandFailed(Exception):
    """Ends a command with exit code 1; the message says what is wrong and what to do."""
