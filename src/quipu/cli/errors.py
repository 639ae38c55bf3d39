"""What went wrong with a command, in one message for the person who gave it."""


class CommandFailed(Exception):
    """Ends a command with exit code 1; the message says what is wrong and what to do."""
