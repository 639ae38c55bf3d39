"""Tables by key: versioned, in buckets of sorted Arrow files, changed a batch at a time.

    contract   shapes and states, as plain data         read this first
    commits    versions: begin and commit, by the driver
    store      merge_bucket: a batch into a bucket, by executors
    at_once    the same in memory, for a table that nobody keeps
    reading    rows of a version, changes between versions, outstanding errors
    cleaning   what no kept version needs goes
    merging, levels, timing        pure: folding events; when to merge and rewrite; closed times
    files, sections, waiting       what is on disk
"""
