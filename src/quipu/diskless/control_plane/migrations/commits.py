"""What PostgreSQL runs to create logs and to commit objects (see functions.py)."""

from typing import Final

_CHANNEL: Final = """
CREATE FUNCTION diskless_channel_1() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT 'quipu_diskless_' || left(md5(current_schema()), 16)
$$
"""

# The rows that a node's maximum is made of (time_index.children).
_CHILDREN: Final = """
CREATE FUNCTION diskless_children_1(number bigint) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    step bigint := 1;
    made bigint[] := '{}';
BEGIN
    WHILE number & step = 0 AND step < number LOOP
        made := made || (number - step);
        step := step * 2;
    END LOOP;
    RETURN made;
END $$
"""

# Runs of one log have ascending rounds: a run needs the nodes of those before it.
_ADD_RUNS: Final = """
CREATE FUNCTION diskless_add_runs_1(
    new_object bigint, now_ms bigint, log_ids bigint[], bases bigint[], ends bigint[],
    positions bigint[], sizes bigint[], batch_counts bigint[], timestamps bigint[],
    numbers bigint[], rounds int[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    last_round int := (SELECT max(r) FROM unnest(rounds) r);
BEGIN
    FOR this_round IN 1 .. coalesce(last_round, 0) LOOP
        INSERT INTO diskless_runs (
            log_id, end_offset, base_offset, object_id, position, size, batch_count,
            max_timestamp, age_ms, run_number, node_max)
        SELECT r.log_id, r.end_offset, r.base_offset, new_object, r.position, r.size,
            r.batch_count, r.max_timestamp,
            CASE WHEN r.max_timestamp >= 0 THEN r.max_timestamp ELSE now_ms END, r.run_number,
            CASE WHEN r.run_number & 1 = 1 THEN r.max_timestamp ELSE greatest(r.max_timestamp, (
                SELECT max(c.node_max) FROM diskless_runs c
                WHERE c.log_id = r.log_id
                AND c.run_number = ANY (diskless_children_1(r.run_number)))) END
        FROM unnest(log_ids, bases, ends, positions, sizes, batch_counts, timestamps, numbers,
                    rounds) AS r (log_id, base_offset, end_offset, position, size, batch_count,
                                  max_timestamp, run_number, round)
        WHERE r.round = this_round;
    END LOOP;
END $$
"""

# commit_plan.plan_commit and sequences.judge, in the words of PostgreSQL.  Logs and pairs (of a log
# and a producer) are given once each; batches refer to them by index, pair 0: no producer.
_COMMIT: Final = """
CREATE FUNCTION diskless_commit_1(
    new_key text, new_uploader int, new_size bigint, now_ms bigint,
    topic_ids text[], partitions int[], pair_logs int[], pair_producers bigint[],
    batch_logs int[], batch_pairs int[], positions bigint[], sizes bigint[], counts bigint[],
    timestamps bigint[], epochs int[], sequences bigint[],
    OUT outcomes bigint[], OUT log_starts bigint[], OUT new_object bigint
) LANGUAGE plpgsql AS $$
DECLARE
    wrap constant bigint := 2147483647;
    entry record;
    batch_count constant int := cardinality(batch_logs);
    ids bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(topic_ids)]);
    starts bigint[] := ids;
    marks bigint[] := ids;
    added bigint[] := ids;
    lasts bigint[] := ids;
    log_runs int[] := array_fill(0, ARRAY[cardinality(topic_ids)]);
    log_rounds int[] := log_runs;
    known_epochs int[] := array_fill(NULL::int, ARRAY[cardinality(pair_logs)]);
    known text[] := array_fill(NULL::text, ARRAY[cardinality(pair_logs)]);
    seen bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(pair_logs)]);
    history bigint[];
    run_ids bigint[] := '{}';
    run_bases bigint[] := '{}';
    run_ends bigint[] := '{}';
    run_positions bigint[] := '{}';
    run_sizes bigint[] := '{}';
    run_batches bigint[] := '{}';
    run_timestamps bigint[] := '{}';
    run_numbers bigint[] := '{}';
    run_rounds int[] := '{}';
    runs int := 0;
    live bigint := 0;
    this_log int;
    pair int;
    run int;
    code int;
    base bigint;
    last_sequence bigint;
BEGIN
    FOR entry IN
        SELECT w.i, l.log_id, l.log_start, l.high_watermark, l.last_run
        FROM unnest(topic_ids, partitions) WITH ORDINALITY AS w (topic_id, partition, i)
        JOIN diskless_logs l ON l.topic_id = w.topic_id AND l.partition = w.partition
        ORDER BY l.log_id FOR UPDATE OF l
    LOOP
        ids[entry.i] := entry.log_id;
        starts[entry.i] := entry.log_start;
        marks[entry.i] := entry.high_watermark;
        lasts[entry.i] := entry.last_run;
        added[entry.i] := 0;
    END LOOP;
    SELECT o.outcomes, o.log_starts, o.object_id INTO outcomes, log_starts, new_object
    FROM diskless_objects o WHERE o.object_key = new_key;
    IF FOUND THEN
        RETURN;  -- diskless.C2
    END IF;
    outcomes := array_fill(0::bigint, ARRAY[batch_count]);
    log_starts := array_fill(-1::bigint, ARRAY[batch_count]);
    FOR entry IN
        SELECT w.i, p.epoch, p.batches
        FROM unnest(pair_logs, pair_producers) WITH ORDINALITY AS w (log, producer_id, i)
        JOIN diskless_producers p ON p.log_id = ids[w.log] AND p.producer_id = w.producer_id
    LOOP
        known_epochs[entry.i] := entry.epoch;
        known[entry.i] := entry.batches::text;
    END LOOP;

    <<batches>>
    FOR b IN 1 .. batch_count LOOP
        this_log := batch_logs[b];
        IF ids[this_log] IS NULL THEN
            outcomes[b] := -3;
            CONTINUE;
        END IF;
        pair := batch_pairs[b];
        IF pair > 0 THEN  -- diskless.C3
            code := 0;
            history := known[pair]::bigint[];
            last_sequence := (sequences[b] + counts[b] - 1) & wrap;
            IF epochs[b] < 0 OR epochs[b] < known_epochs[pair] THEN
                code := -47;
            ELSIF sequences[b] < 0 THEN
                code := -45;
            ELSIF history IS NULL THEN
                NULL;
            ELSIF epochs[b] > known_epochs[pair] THEN
                IF sequences[b] = 0 THEN
                    history := NULL;
                ELSE
                    code := -45;
                END IF;
            ELSE
                FOR k IN 0 .. cardinality(history) / 3 - 1 LOOP
                    IF history[k * 3 + 1] = sequences[b] AND history[k * 3 + 2] = last_sequence THEN
                        outcomes[b] := history[k * 3 + 3] * 2 + 1;
                        log_starts[b] := starts[this_log];
                        CONTINUE batches;
                    END IF;
                END LOOP;
                IF sequences[b] <> (history[cardinality(history) - 1] + 1) & wrap THEN
                    code := -45;
                END IF;
            END IF;
            IF code < 0 THEN
                outcomes[b] := code;
                CONTINUE;
            END IF;
            IF cardinality(history) = 15 THEN
                history := history[4:15];
            END IF;
            known[pair] := (history || ARRAY[sequences[b], last_sequence, marks[this_log]])::text;
            known_epochs[pair] := epochs[b];
            seen[pair] := timestamps[b];
        END IF;

        base := marks[this_log];  -- diskless.C1
        marks[this_log] := base + counts[b];
        added[this_log] := added[this_log] + sizes[b];
        live := live + sizes[b];
        outcomes[b] := base * 2;
        log_starts[b] := starts[this_log];
        run := log_runs[this_log];
        IF run > 0 AND run_positions[run] + run_sizes[run] = positions[b] THEN
            run_ends[run] := marks[this_log];
            run_sizes[run] := run_sizes[run] + sizes[b];
            run_batches[run] := run_batches[run] + 1;
            run_timestamps[run] := greatest(run_timestamps[run], timestamps[b]);
        ELSE
            runs := runs + 1;
            lasts[this_log] := lasts[this_log] + 1;
            log_rounds[this_log] := log_rounds[this_log] + 1;
            log_runs[this_log] := runs;
            run_ids[runs] := ids[this_log];
            run_bases[runs] := base;
            run_ends[runs] := marks[this_log];
            run_positions[runs] := positions[b];
            run_sizes[runs] := sizes[b];
            run_batches[runs] := 1;
            run_timestamps[runs] := timestamps[b];
            run_numbers[runs] := lasts[this_log];
            run_rounds[runs] := log_rounds[this_log];
        END IF;
    END LOOP;

    INSERT INTO diskless_objects (
        object_key, uploader, size, live_size, run_count, committed_ms, marked_ms, outcomes,
        log_starts)
    VALUES (new_key, new_uploader, new_size, live, runs, now_ms,
            CASE WHEN runs = 0 THEN now_ms END, diskless_commit_1.outcomes,
            diskless_commit_1.log_starts)
    ON CONFLICT (object_key) DO NOTHING RETURNING object_id INTO new_object;
    IF new_object IS NULL THEN
        RAISE EXCEPTION 'the same object is being committed' USING ERRCODE = '40001';
    END IF;
    IF runs = 0 THEN
        RETURN;
    END IF;
    PERFORM diskless_add_runs_1(new_object, now_ms, run_ids, run_bases, run_ends, run_positions,
                                run_sizes, run_batches, run_timestamps, run_numbers, run_rounds);
    UPDATE diskless_logs l
    SET high_watermark = w.mark, size = l.size + w.grown, last_run = w.last_run
    FROM unnest(ids, marks, added, lasts) AS w (log_id, mark, grown, last_run)
    WHERE l.log_id = w.log_id AND w.grown > 0;
    IF cardinality(pair_logs) > 0 THEN
        INSERT INTO diskless_producers AS p (
            log_id, producer_id, epoch, last_timestamp, last_commit_ms, batches)
        SELECT ids[w.log], w.producer_id, w.epoch, w.seen, now_ms, w.batches::bigint[]
        FROM unnest(pair_logs, pair_producers, known_epochs, seen, known)
            AS w (log, producer_id, epoch, seen, batches)
        WHERE w.seen IS NOT NULL
        ON CONFLICT (log_id, producer_id) DO UPDATE SET epoch = excluded.epoch,
            last_timestamp = excluded.last_timestamp, last_commit_ms = excluded.last_commit_ms,
            batches = excluded.batches;
    END IF;
END $$
"""

_CREATE_LOGS: Final = """
CREATE FUNCTION diskless_create_logs_1(new_topic text, new_name text, new_count int)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO diskless_topics AS t (topic_id, name, partition_count)
    VALUES (new_topic, new_name, new_count)
    ON CONFLICT (topic_id) DO UPDATE
    SET partition_count = greatest(t.partition_count, excluded.partition_count)
    WHERE t.deleted_ms IS NULL;
    IF FOUND THEN  -- diskless.C8
        INSERT INTO diskless_logs (topic_id, partition)
        SELECT new_topic, p FROM generate_series(0, new_count - 1) p
        ON CONFLICT (topic_id, partition) DO NOTHING;
    END IF;
END $$
"""

COMMITS: Final = (_CHANNEL, _CHILDREN, _ADD_RUNS, _COMMIT, _CREATE_LOGS)
