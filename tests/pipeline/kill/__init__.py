"""Drivers and brokers that end without warning while views are kept up to date."""
