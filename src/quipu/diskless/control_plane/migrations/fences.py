"""What PostgreSQL runs so that keys which are given up are never committed (diskless.C10).

A trigger checks every object that is entered, after its row was inserted.  Who condemns a key
inserts a row with it as well, raises the fence, and deletes the row again.  As keys are unique, one
of the two waits for the other: either the commit comes first and the key is known, or the fence
does and the trigger sees it.
"""

from typing import Final

FENCED_STATE: Final = "QF001"  # SQLSTATE of the trigger's error

_TABLES: Final = (
    'CREATE TABLE diskless_fences (writer text COLLATE "C" PRIMARY KEY, sequence bigint NOT NULL)',
    "CREATE TABLE diskless_identity (identity text NOT NULL)",
    "INSERT INTO diskless_identity (identity) VALUES (gen_random_uuid()::text)",
)

# fences.fence_of
_FENCE_OF: Final = """
CREATE FUNCTION diskless_fence_of_1(this_key text, OUT writer text, OUT sequence bigint)
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    name constant text := regexp_replace(this_key, '^.*/', '');
BEGIN
    IF name ~ '^.+-[0-9a-f]{16}$' THEN
        writer := left(name, -17);
        sequence := ('x' || right(name, 16))::bit(64)::bigint;
        IF sequence >= 0 THEN
            RETURN;
        END IF;
    END IF;
    writer := '=' || this_key;
    sequence := 0;
END $$
"""

_IS_FENCED: Final = """
CREATE FUNCTION diskless_is_fenced_1(this_key text) RETURNS boolean LANGUAGE sql AS $$
    SELECT EXISTS (SELECT 1 FROM diskless_fence_of_1(this_key) k
                   JOIN diskless_fences f ON f.writer = k.writer AND f.sequence >= k.sequence)
$$
"""

_CHECK: Final = f"""
CREATE FUNCTION diskless_check_fence_1() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF diskless_is_fenced_1(NEW.object_key) THEN
        RAISE EXCEPTION '% was given up', NEW.object_key USING ERRCODE = '{FENCED_STATE}';
    END IF;
    RETURN NULL;
END $$
"""

# The uploader -1 is nobody: a row that holds a key while it is condemned.
_TRIGGER: Final = """
CREATE TRIGGER diskless_objects_fence AFTER INSERT ON diskless_objects
FOR EACH ROW WHEN (NEW.uploader <> -1) EXECUTE FUNCTION diskless_check_fence_1()
"""

_FENCE: Final = """
CREATE FUNCTION diskless_fence_1(keys text[]) RETURNS void LANGUAGE sql AS $$
    INSERT INTO diskless_fences AS f (writer, sequence)
    SELECT k.writer, max(k.sequence) FROM unnest(keys) AS u (this_key),
        LATERAL diskless_fence_of_1(u.this_key) k
    GROUP BY k.writer ORDER BY k.writer
    ON CONFLICT (writer) DO UPDATE SET sequence = greatest(f.sequence, excluded.sequence)
$$
"""

_FORGET: Final = """
CREATE FUNCTION diskless_forget_1(keys text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    gone text[];
BEGIN
    WITH unused AS (
        SELECT o.object_id FROM diskless_objects o
        WHERE o.object_key = ANY (keys) AND o.marked_ms IS NOT NULL ORDER BY o.object_id FOR UPDATE
    ), deleted AS (
        DELETE FROM diskless_objects o USING unused WHERE o.object_id = unused.object_id
        RETURNING o.object_key)
    SELECT array_agg(object_key) INTO gone FROM deleted;
    PERFORM diskless_fence_1(gone);
END $$
"""

_CONDEMN: Final = """
CREATE FUNCTION diskless_condemn_1(keys text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    held text[];
BEGIN
    WITH entered AS (
        INSERT INTO diskless_objects (object_key, uploader, size, live_size, run_count,
            committed_ms, marked_ms, outcomes, log_starts)
        SELECT DISTINCT k, -1, 0, 0, 0, 0, 0, '{}'::bigint[], '{}'::bigint[]
        FROM unnest(keys) AS k ORDER BY k
        ON CONFLICT (object_key) DO NOTHING RETURNING object_key)
    SELECT array_agg(object_key) INTO held FROM entered;
    PERFORM diskless_fence_1(held);
    DELETE FROM diskless_objects o WHERE o.object_key = ANY (held);
    RETURN QUERY SELECT unnest(held);
END $$
"""

FENCES: Final = (*_TABLES, _FENCE_OF, _IS_FENCED, _CHECK, _TRIGGER, _FENCE, _FORGET, _CONDEMN)
