"""Tables by key: versioned, in buckets of sorted Arrow files, changed a batch at a time."""
