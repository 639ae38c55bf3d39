"""Envelopes: what decoded messages mean, as rows to add or as events that replace rows.

    contract   messages in; rows or events, and dead letters, out      read this first
    make       the envelope of a source
    events     what messages do to a table, as columns
    parcels    events of one bucket as bytes, and back
    plain, upsert, row_keyed, materialize      the envelopes
    identity, fingerprints                     who a row is: canonical bytes, hashes, buckets
    metadata, rows, faults, dead_letters       what they have in common
"""
