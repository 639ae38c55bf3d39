"""What tests share that is not a test: a real node as a process of its own."""
