"""Envelopes: what decoded messages mean, as rows to add or as events that replace rows."""
