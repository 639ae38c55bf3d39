"""The bench against servers whose behaviour is known: a fake broker, and bare ones."""
