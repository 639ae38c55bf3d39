"""How soon a node serves, and what it costs while it has nothing to do."""
