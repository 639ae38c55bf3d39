"""What PostgreSQL runs to remove records, topics and runs (see functions.py)."""

from typing import Final

# diskless.C6: objects have lost runs, one entry for each; a time of NULL: unused from the first.
_RELEASE: Final = """
CREATE FUNCTION diskless_release_1(object_ids bigint[], sizes bigint[], now_ms bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM diskless_objects o WHERE o.object_id = ANY (object_ids)
    ORDER BY o.object_id FOR UPDATE;
    UPDATE diskless_objects o
    SET run_count = o.run_count - g.runs, live_size = o.live_size - g.size,
        marked_ms = CASE WHEN o.run_count = g.runs THEN coalesce(now_ms, o.committed_ms)
                         ELSE o.marked_ms END
    FROM (SELECT w.object_id, count(*) AS runs, sum(w.size)::bigint AS size
          FROM unnest(object_ids, sizes) AS w (object_id, size) GROUP BY w.object_id) AS g
    WHERE o.object_id = g.object_id;
END $$
"""

# diskless.C4, diskless.C5: the caller has locked the log.
_RAISE: Final = """
CREATE FUNCTION diskless_raise_1(
    this_log bigint, new_log_start bigint, new_diskless_start bigint, new_mark bigint,
    now_ms bigint, OUT o_log_start bigint, OUT o_diskless_start bigint, OUT o_mark bigint,
    OUT o_size bigint
) LANGUAGE plpgsql AS $$
DECLARE
    object_ids bigint[];
    sizes bigint[];
    gone bigint;
BEGIN
    SELECT greatest(l.log_start, new_log_start),
        greatest(l.diskless_start, new_diskless_start, l.log_start, new_log_start),
        greatest(l.high_watermark, new_mark, l.diskless_start, new_diskless_start, new_log_start)
    INTO o_log_start, o_diskless_start, o_mark
    FROM diskless_logs l WHERE l.log_id = this_log;
    WITH removed AS (
        DELETE FROM diskless_runs r WHERE r.log_id = this_log AND r.end_offset <= o_diskless_start
        RETURNING r.object_id, r.size)
    SELECT array_agg(d.object_id), array_agg(d.size), coalesce(sum(d.size), 0)
    INTO object_ids, sizes, gone FROM removed d;
    UPDATE diskless_logs l SET log_start = o_log_start, diskless_start = o_diskless_start,
        high_watermark = o_mark, size = l.size - gone
    WHERE l.log_id = this_log RETURNING l.size INTO o_size;
    IF object_ids IS NOT NULL THEN
        PERFORM diskless_release_1(object_ids, sizes, now_ms);
    END IF;
END $$
"""

_DELETE_RECORDS: Final = """
CREATE FUNCTION diskless_delete_records_1(
    this_topic text, this_partition int, before bigint, now_ms bigint
) RETURNS TABLE (b_log_start bigint, b_diskless_start bigint, b_mark bigint, b_size bigint)
LANGUAGE plpgsql AS $$
DECLARE
    entry diskless_logs;
    start bigint;
BEGIN
    SELECT * INTO entry FROM diskless_logs l
    WHERE l.topic_id = this_topic AND l.partition = this_partition FOR UPDATE;
    IF entry.log_id IS NULL THEN
        RETURN;
    END IF;
    start := CASE before WHEN -1 THEN entry.high_watermark ELSE before END;
    IF start > entry.log_start AND start <= entry.high_watermark THEN
        RETURN QUERY SELECT * FROM diskless_raise_1(entry.log_id, start, 0, 0, now_ms);
    ELSE
        RETURN QUERY
        SELECT entry.log_start, entry.diskless_start, entry.high_watermark, entry.size;
    END IF;
END $$
"""

# retention.end_of_expired: NULL if all runs stay.
_EXPIRED: Final = """
CREATE FUNCTION diskless_expired_1(
    this_log bigint, log_size bigint, start bigint, retention_ms bigint, retention_bytes bigint,
    now_ms bigint, runs_max int
) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    run record;
    left_size bigint := log_size;
    expired bigint;
BEGIN
    FOR run IN SELECT r.end_offset, r.size, r.age_ms FROM diskless_runs r
        WHERE r.log_id = this_log AND r.end_offset > start ORDER BY r.end_offset LIMIT runs_max
    LOOP
        EXIT WHEN NOT (retention_ms >= 0 AND run.age_ms < now_ms::numeric - retention_ms)
            AND NOT (retention_bytes >= 0 AND left_size - run.size >= retention_bytes);
        left_size := left_size - run.size;
        expired := run.end_offset;
    END LOOP;
    RETURN expired;
END $$
"""

_RETAIN: Final = """
CREATE FUNCTION diskless_retain_1(
    this_topic text, this_partition int, retention_ms bigint, retention_bytes bigint,
    now_ms bigint, runs_max int
) RETURNS TABLE (b_log_start bigint, b_diskless_start bigint, b_mark bigint, b_size bigint)
LANGUAGE plpgsql AS $$
DECLARE
    entry diskless_logs;
    expired bigint;
BEGIN
    SELECT * INTO entry FROM diskless_logs l
    WHERE l.topic_id = this_topic AND l.partition = this_partition FOR UPDATE;
    IF entry.log_id IS NULL THEN
        RETURN;
    END IF;
    expired := diskless_expired_1(entry.log_id, entry.size, entry.diskless_start, retention_ms,
                                  retention_bytes, now_ms, runs_max);
    RETURN QUERY SELECT * FROM diskless_raise_1(entry.log_id, coalesce(expired, 0), 0, 0, now_ms);
END $$
"""

_DELETE_TOPIC: Final = """
CREATE FUNCTION diskless_delete_topic_1(this_topic text, now_ms bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    log_ids bigint[];
    object_ids bigint[];
    sizes bigint[];
BEGIN
    INSERT INTO diskless_topics AS t (topic_id, name, partition_count, deleted_ms)
    VALUES (this_topic, '', 0, now_ms)
    ON CONFLICT (topic_id) DO UPDATE
    SET partition_count = 0, deleted_ms = coalesce(t.deleted_ms, now_ms);
    SELECT array_agg(g.log_id) INTO log_ids FROM (
        SELECT l.log_id FROM diskless_logs l WHERE l.topic_id = this_topic
        ORDER BY l.log_id FOR UPDATE) AS g;
    WITH removed AS (
        DELETE FROM diskless_runs r WHERE r.log_id = ANY (log_ids) RETURNING r.object_id, r.size)
    SELECT array_agg(d.object_id), array_agg(d.size) INTO object_ids, sizes FROM removed d;
    DELETE FROM diskless_producers p WHERE p.log_id = ANY (log_ids);
    DELETE FROM diskless_logs l WHERE l.log_id = ANY (log_ids);
    IF object_ids IS NOT NULL THEN
        PERFORM diskless_release_1(object_ids, sizes, now_ms);
    END IF;
END $$
"""

_NOTE_TIERED: Final = """
CREATE FUNCTION diskless_note_tiered_1(
    this_topic text, this_partition int, claim_epoch bigint, claim_owner text, tiered bigint,
    now_ms bigint
) RETURNS TABLE (b_log_start bigint, b_diskless_start bigint, b_mark bigint, b_size bigint)
LANGUAGE plpgsql AS $$
DECLARE
    entry diskless_logs;
BEGIN
    SELECT * INTO entry FROM diskless_logs l
    WHERE l.topic_id = this_topic AND l.partition = this_partition FOR UPDATE;
    PERFORM 1 FROM diskless_claims c
    WHERE c.log_id = entry.log_id AND c.epoch = claim_epoch AND c.owner = claim_owner FOR UPDATE;
    IF FOUND THEN
        RETURN QUERY SELECT * FROM diskless_raise_1(
            entry.log_id, 0, least(tiered, entry.high_watermark), 0, now_ms);
    END IF;
END $$
"""

# A rewritten object: the same runs at other places, all or none.
_REWRITE: Final = """
CREATE FUNCTION diskless_rewrite_1(
    new_key text, new_uploader int, new_size bigint, now_ms bigint, topic_ids text[],
    partitions int[], old_keys text[], bases bigint[], ends bigint[], old_positions bigint[],
    sizes bigint[], batch_counts bigint[], timestamps bigint[], new_positions bigint[]
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    new_object bigint;
    moved constant bigint := cardinality(ends);
    log_ids bigint[];
    object_ids bigint[];
BEGIN
    PERFORM 1 FROM diskless_logs l
    WHERE (l.topic_id, l.partition) IN (SELECT * FROM unnest(topic_ids, partitions))
    ORDER BY l.log_id FOR UPDATE;
    PERFORM 1 FROM diskless_objects o WHERE o.object_key = new_key;
    IF FOUND THEN
        RETURN true;
    END IF;
    SELECT array_agg(r.log_id ORDER BY w.i), array_agg(r.object_id ORDER BY w.i)
    INTO log_ids, object_ids
    FROM unnest(topic_ids, partitions, old_keys, bases, ends, old_positions, sizes, batch_counts,
                timestamps) WITH ORDINALITY
        AS w (topic_id, partition, object_key, base_offset, end_offset, position, size,
              batch_count, max_timestamp, i)
    JOIN diskless_logs l ON l.topic_id = w.topic_id AND l.partition = w.partition
    JOIN diskless_runs r ON r.log_id = l.log_id AND r.end_offset = w.end_offset
    JOIN diskless_objects o ON o.object_id = r.object_id AND o.object_key = w.object_key
    WHERE r.base_offset = w.base_offset AND r.position = w.position AND r.size = w.size
    AND r.batch_count = w.batch_count AND r.max_timestamp = w.max_timestamp;
    IF coalesce(cardinality(log_ids), 0) <> moved THEN
        RETURN false;
    END IF;
    INSERT INTO diskless_objects (
        object_key, uploader, size, live_size, run_count, committed_ms, marked_ms, outcomes,
        log_starts)
    VALUES (new_key, new_uploader, new_size,
            (SELECT coalesce(sum(s), 0) FROM unnest(sizes) s), moved, now_ms,
            CASE WHEN moved = 0 THEN now_ms END, '{}', '{}')
    ON CONFLICT (object_key) DO NOTHING RETURNING object_id INTO new_object;
    IF new_object IS NULL THEN
        RAISE EXCEPTION 'the same object is being entered' USING ERRCODE = '40001';
    END IF;
    IF moved > 0 THEN
        UPDATE diskless_runs r SET object_id = new_object, position = w.position
        FROM unnest(log_ids, ends, new_positions) AS w (log_id, end_offset, position)
        WHERE r.log_id = w.log_id AND r.end_offset = w.end_offset;
        PERFORM diskless_release_1(object_ids, sizes, now_ms);
    END IF;
    RETURN true;
END $$
"""

_SET_BOUNDS: Final = """
CREATE FUNCTION diskless_restore_bounds_1(
    this_topic text, this_partition int, new_log_start bigint, new_diskless_start bigint,
    new_mark bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    entry bigint;
BEGIN
    SELECT l.log_id INTO entry FROM diskless_logs l
    WHERE l.topic_id = this_topic AND l.partition = this_partition FOR UPDATE;
    IF entry IS NOT NULL THEN
        PERFORM diskless_raise_1(entry, new_log_start, new_diskless_start, new_mark, NULL);
    END IF;
END $$
"""

_ADVANCE: Final = """
CREATE FUNCTION diskless_advance_1(this_topic text, this_partition int, new_log_start bigint)
RETURNS TABLE (b_log_start bigint, b_diskless_start bigint, b_mark bigint, b_size bigint)
LANGUAGE sql AS $$
    UPDATE diskless_logs l SET log_start = greatest(l.log_start,
        least(new_log_start, l.diskless_start))
    WHERE l.topic_id = this_topic AND l.partition = this_partition
    RETURNING l.log_start, l.diskless_start, l.high_watermark, l.size
$$
"""

REMOVALS: Final = (_RELEASE, _RAISE, _DELETE_RECORDS, _EXPIRED, _RETAIN, _DELETE_TOPIC,
                   _NOTE_TIERED, _REWRITE, _SET_BOUNDS, _ADVANCE)
