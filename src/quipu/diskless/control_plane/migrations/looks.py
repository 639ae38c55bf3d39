"""What PostgreSQL runs to find runs (see functions.py).

They are STABLE: all that one call reads is of one moment.  Keys of objects are looked up one by
one, so that no join can make the planner read a whole log first (diskless.C7).
"""

from typing import Final

# For each request a row with the log's bounds and no run, then its runs; none: no such log.
_FIND: Final = """
CREATE FUNCTION diskless_find_1(
    topic_ids text[], partitions int[], offsets bigint[], sizes_max bigint[], runs_max int
) RETURNS TABLE (
    request int, b_log_start bigint, b_diskless_start bigint, b_mark bigint, b_size bigint,
    r_base bigint, r_end bigint, r_key text, r_position bigint, r_size bigint, r_batches bigint,
    r_timestamp bigint)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    entry diskless_logs;
    total numeric;
BEGIN
    FOR i IN 1 .. cardinality(topic_ids) LOOP
        SELECT * INTO entry FROM diskless_logs l
        WHERE l.topic_id = topic_ids[i] AND l.partition = partitions[i];
        CONTINUE WHEN entry.log_id IS NULL;
        request := i;
        b_log_start := entry.log_start;
        b_diskless_start := entry.diskless_start;
        b_mark := entry.high_watermark;
        b_size := entry.size;
        r_base := NULL;
        RETURN NEXT;
        CONTINUE WHEN offsets[i] < b_diskless_start OR offsets[i] >= b_mark;
        total := 0;
        FOR r_base, r_end, r_key, r_position, r_size, r_batches, r_timestamp IN
            SELECT r.base_offset, r.end_offset, (
                    SELECT o.object_key FROM diskless_objects o WHERE o.object_id = r.object_id),
                r.position, r.size, r.batch_count, r.max_timestamp
            FROM diskless_runs r WHERE r.log_id = entry.log_id AND r.end_offset > offsets[i]
            ORDER BY r.end_offset LIMIT runs_max
        LOOP
            RETURN NEXT;
            total := total + r_size;
            EXIT WHEN total >= sizes_max[i];
        END LOOP;
    END LOOP;
END $$
"""

# time_index.first_at_least; a time of NULL: the largest timestamp (time_index.maximum).
_FIND_TIMESTAMP: Final = """
CREATE FUNCTION diskless_find_timestamp_1(
    this_topic text, this_partition int, wanted bigint, from_offset bigint
) RETURNS TABLE (
    r_base bigint, r_end bigint, r_key text, r_position bigint, r_size bigint, r_batches bigint,
    r_timestamp bigint)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    entry diskless_logs;
    first bigint;
    before bigint;
    width bigint;
    node bigint;
    largest bigint;
    target bigint := wanted;
BEGIN
    SELECT * INTO entry FROM diskless_logs l
    WHERE l.topic_id = this_topic AND l.partition = this_partition;
    SELECT r.run_number INTO first FROM diskless_runs r
    WHERE r.log_id = entry.log_id AND r.end_offset > greatest(from_offset, entry.diskless_start)
    ORDER BY r.end_offset LIMIT 1;
    IF first IS NULL THEN
        RETURN;
    END IF;
    <<passes>>
    LOOP
        before := first - 1;
        WHILE before < entry.last_run LOOP
            width := CASE before WHEN 0 THEN 1::bigint << 62
                                 ELSE greatest((before & -before) / 2, 1) END;
            WHILE before + width > entry.last_run LOOP
                width := width / 2;
            END LOOP;
            SELECT CASE width WHEN 1 THEN r.max_timestamp ELSE r.node_max END INTO STRICT node
            FROM diskless_runs r
            WHERE r.log_id = entry.log_id AND r.run_number = before + width;
            EXIT passes WHEN node >= target;
            largest := greatest(largest, node);
            before := before + width;
        END LOOP;
        IF target IS NOT NULL THEN
            RETURN;  -- all are before it
        END IF;
        target := largest;
    END LOOP;
    WHILE width > 1 LOOP  -- it is one of (before, before + width]
        width := width / 2;
        SELECT CASE width WHEN 1 THEN r.max_timestamp ELSE r.node_max END INTO STRICT node
        FROM diskless_runs r
        WHERE r.log_id = entry.log_id AND r.run_number = before + width;
        IF node < target THEN
            before := before + width;
        END IF;
    END LOOP;
    RETURN QUERY SELECT r.base_offset, r.end_offset, o.object_key, r.position, r.size,
        r.batch_count, r.max_timestamp
    FROM diskless_runs r JOIN diskless_objects o ON o.object_id = r.object_id
    WHERE r.log_id = entry.log_id AND r.run_number = before + 1;
END $$
"""

_AGED: Final = """
CREATE FUNCTION diskless_aged_1(
    this_topic text, this_partition int, before_ms bigint, runs_max int
) RETURNS TABLE (
    r_base bigint, r_end bigint, r_key text, r_position bigint, r_size bigint, r_batches bigint,
    r_timestamp bigint)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    entry diskless_logs;
    age bigint;
BEGIN
    SELECT * INTO entry FROM diskless_logs l
    WHERE l.topic_id = this_topic AND l.partition = this_partition;
    FOR r_base, r_end, r_key, r_position, r_size, r_batches, r_timestamp, age IN
        SELECT r.base_offset, r.end_offset, (
                SELECT o.object_key FROM diskless_objects o WHERE o.object_id = r.object_id),
            r.position, r.size, r.batch_count, r.max_timestamp, r.age_ms
        FROM diskless_runs r
        WHERE r.log_id = entry.log_id AND r.end_offset > entry.diskless_start
        ORDER BY r.end_offset LIMIT runs_max
    LOOP
        EXIT WHEN age >= before_ms;
        RETURN NEXT;
    END LOOP;
END $$
"""

# Of each rule that there is a log for: its index, the bounds, and whether a run has expired.
_LOOK_EXPIRED: Final = """
CREATE FUNCTION diskless_look_expired_1(
    topic_ids text[], partitions int[], ages_ms bigint[], sizes bigint[], now_ms bigint
) RETURNS TABLE (rule bigint, b_log_start bigint, b_diskless_start bigint, b_mark bigint,
                 b_size bigint, is_expired boolean)
LANGUAGE sql STABLE AS $$
    SELECT w.i, l.log_start, l.diskless_start, l.high_watermark, l.size,
        diskless_expired_1(l.log_id, l.size, l.diskless_start, w.retention_ms, w.retention_bytes,
                           now_ms, 1) IS NOT NULL
    FROM unnest(topic_ids, partitions, ages_ms, sizes) WITH ORDINALITY
        AS w (topic_id, partition, retention_ms, retention_bytes, i)
    JOIN diskless_logs l ON l.topic_id = w.topic_id AND l.partition = w.partition
$$
"""

LOOKS: Final = (_FIND, _FIND_TIMESTAMP, _AGED, _LOOK_EXPIRED)
