"""What PostgreSQL runs to rebuild a control plane (see functions.py): right first, then fast."""

from typing import Final

# sequences.recall
_RECALL: Final = """
CREATE FUNCTION diskless_recall_1(
    this_log bigint, this_producer bigint, new_epoch int, first_sequence bigint,
    last_sequence bigint, base bigint, new_timestamp bigint, now_ms bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    entry diskless_producers;
    merged bigint[];
BEGIN
    SELECT * INTO entry FROM diskless_producers p
    WHERE p.log_id = this_log AND p.producer_id = this_producer;
    IF entry.epoch > new_epoch THEN
        RETURN;
    END IF;
    IF entry.epoch = new_epoch THEN
        SELECT array_agg(v.number ORDER BY b.base, v.k) INTO merged
        FROM (SELECT q.* FROM (
                  SELECT entry.batches[i], entry.batches[i + 1], entry.batches[i + 2]
                  FROM generate_series(1, cardinality(entry.batches), 3) i
                  UNION SELECT first_sequence, last_sequence, diskless_recall_1.base
              ) AS q (first, last, base) ORDER BY q.base DESC LIMIT 5) AS b,
            LATERAL (VALUES (1, b.first), (2, b.last), (3, b.base)) AS v (k, number);
    ELSE
        merged := ARRAY[first_sequence, last_sequence, base];
    END IF;
    INSERT INTO diskless_producers AS p (
        log_id, producer_id, epoch, last_timestamp, last_commit_ms, batches)
    VALUES (this_log, this_producer, new_epoch, new_timestamp, now_ms, merged)
    ON CONFLICT (log_id, producer_id) DO UPDATE SET epoch = new_epoch,
        last_timestamp = CASE WHEN merged[cardinality(merged)] = diskless_recall_1.base
                              THEN new_timestamp ELSE p.last_timestamp END,
        last_commit_ms = greatest(p.last_commit_ms, now_ms), batches = merged;
END $$
"""

# Enters an object whose batches have offsets; returns the logs whose runs must be numbered anew.
# Batches whose offsets are not free are not in use (diskless.C5).
_RESTORE: Final = """
CREATE FUNCTION diskless_restore_1(
    new_key text, new_uploader int, new_size bigint, now_ms bigint, topic_ids text[],
    partitions int[], batch_logs int[], positions bigint[], sizes bigint[], counts bigint[],
    timestamps bigint[], producers bigint[], epochs int[], sequences bigint[], offsets bigint[],
    outcomes bigint[], log_starts bigint[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    new_object bigint;
    log diskless_logs;
    run diskless_runs;
    unordered bigint[] := '{}';
    base bigint;
    run_end bigint;
    entered bigint := 0;
    live bigint := 0;
BEGIN
    INSERT INTO diskless_objects (
        object_key, uploader, size, live_size, run_count, committed_ms, marked_ms, outcomes,
        log_starts)
    VALUES (new_key, new_uploader, new_size, 0, 0, now_ms, now_ms, diskless_restore_1.outcomes,
            diskless_restore_1.log_starts)
    ON CONFLICT (object_key) DO NOTHING RETURNING object_id INTO new_object;
    IF new_object IS NULL THEN
        RETURN unordered;
    END IF;
    FOR b IN 1 .. cardinality(batch_logs) LOOP
        base := offsets[b];
        run_end := base + counts[b];
        SELECT * INTO log FROM diskless_logs l
        WHERE l.topic_id = topic_ids[batch_logs[b]] AND l.partition = partitions[batch_logs[b]];
        CONTINUE WHEN base < 0 OR log.log_id IS NULL OR run_end <= log.diskless_start;
        SELECT * INTO run FROM diskless_runs r
        WHERE r.log_id = log.log_id AND r.end_offset > base ORDER BY r.end_offset LIMIT 1;
        CONTINUE WHEN run.base_offset < run_end;
        IF run.log_id IS NOT NULL THEN
            unordered := unordered || log.log_id;
        END IF;
        UPDATE diskless_runs r SET end_offset = run_end, size = r.size + sizes[b],
            batch_count = r.batch_count + 1,
            max_timestamp = greatest(r.max_timestamp, timestamps[b]),
            age_ms = CASE WHEN greatest(r.max_timestamp, timestamps[b]) >= 0
                          THEN greatest(r.max_timestamp, timestamps[b]) ELSE now_ms END,
            node_max = greatest(r.node_max, timestamps[b])
        WHERE r.log_id = log.log_id AND r.end_offset = base AND r.object_id = new_object
        AND r.position + r.size = positions[b];
        IF NOT FOUND THEN
            entered := entered + 1;
            log.last_run := log.last_run + 1;
            PERFORM diskless_add_runs_1(
                new_object, now_ms, ARRAY[log.log_id], ARRAY[base], ARRAY[run_end],
                ARRAY[positions[b]], ARRAY[sizes[b]], ARRAY[1::bigint], ARRAY[timestamps[b]],
                ARRAY[log.last_run], ARRAY[1]);
        END IF;
        UPDATE diskless_logs l SET high_watermark = greatest(l.high_watermark, run_end),
            size = l.size + sizes[b], last_run = log.last_run
        WHERE l.log_id = log.log_id;
        live := live + sizes[b];
        IF producers[b] >= 0 THEN
            PERFORM diskless_recall_1(
                log.log_id, producers[b], epochs[b], sequences[b],
                (sequences[b] + counts[b] - 1) & 2147483647, base, timestamps[b], now_ms);
        END IF;
    END LOOP;
    UPDATE diskless_objects o SET live_size = live, run_count = entered, marked_ms = NULL
    WHERE o.object_id = new_object AND entered > 0;
    RETURN unordered;
END $$
"""

# Numbers the runs of a log by their offsets, and computes their nodes (time_index.node_maxima).
_RENUMBER: Final = """
CREATE FUNCTION diskless_renumber_1(this_log bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    run record;
    nodes bigint[] := '{}';
    ends bigint[] := '{}';
    node bigint;
    step bigint;
    number bigint := 0;
BEGIN
    FOR run IN SELECT r.end_offset, r.max_timestamp FROM diskless_runs r
        WHERE r.log_id = this_log ORDER BY r.end_offset
    LOOP
        number := number + 1;
        node := run.max_timestamp;
        step := 1;
        WHILE number & step = 0 AND step < number LOOP
            node := greatest(node, nodes[number - step]);
            step := step * 2;
        END LOOP;
        nodes[number] := node;
        ends[number] := run.end_offset;
    END LOOP;
    UPDATE diskless_runs r SET run_number = w.number, node_max = w.node
    FROM unnest(ends, nodes) WITH ORDINALITY AS w (end_offset, node, number)
    WHERE r.log_id = this_log AND r.end_offset = w.end_offset;
    UPDATE diskless_logs l SET last_run = number WHERE l.log_id = this_log;
END $$
"""

RESTORES: Final = (_RECALL, _RESTORE, _RENUMBER)
