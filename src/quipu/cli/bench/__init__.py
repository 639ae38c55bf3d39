"""`quipu bench`: how fast a broker is, beside how fast the machine is."""
