"""Queries and the relations that they read: what `relations` has to find in Spark's language.

`tests/pipeline/sql` holds our reader to these; `tests/pipeline/spark` holds these to Spark, and
both to queries that are made up (`made_query`).
"""

from random import Random
from typing import NamedTuple


class Case(NamedTuple):
    """A query, and the names that it reads: names that no WITH of it defines."""

    why: str
    query: str
    want: tuple[str, ...]


CASES = [
    # -- FROM and JOIN
    Case("one", "SELECT * FROM a", ("a",)),
    Case("none", "SELECT 1", ()),
    Case("joins", "SELECT * FROM a JOIN b ON a.x = b.x LEFT JOIN c USING (x, y)", ("a", "b", "c")),
    Case("all kinds of joins", "SELECT * FROM a CROSS JOIN b NATURAL FULL OUTER JOIN c LEFT SEMI "
         "JOIN d ON a.x = d.x ANTI JOIN e ON a.x = e.x RIGHT JOIN f USING (x)",
         ("a", "b", "c", "d", "e", "f")),
    Case("commas", "SELECT p, q FROM a x, b AS y, c WHERE p IN (1, 2)", ("a", "b", "c")),
    Case("a comma after a condition", "SELECT * FROM a JOIN b ON f(a.x, b.x), c", ("a", "b", "c")),
    Case("a comma after an alias with columns", "SELECT * FROM a AS t(p, q), b u(r, s), c",
         ("a", "b", "c")),
    Case("a comma after USING", "SELECT * FROM a JOIN b USING (x, y), c", ("a", "b", "c")),
    Case("parentheses around joins", "SELECT * FROM ((a JOIN b ON true) CROSS JOIN c)",
         ("a", "b", "c")),
    Case("parentheses around a relation with an alias", "SELECT * FROM (a) AS t, (b JOIN c) u",
         ("a", "b", "c")),
    Case("each once", "SELECT * FROM a UNION SELECT * FROM a", ("a",)),
    Case("FROM first", "FROM a JOIN b SELECT x, y", ("a", "b")),
    Case("FROM alone", "FROM a, b", ("a", "b")),
    Case("FROM first, of a subquery", "FROM (FROM a SELECT x) SELECT x", ("a",)),
    Case("FROM first, once for two", "FROM a SELECT x WHERE x > 1 UNION ALL FROM b SELECT y",
         ("a", "b")),
    Case("samples", "SELECT * FROM a TABLESAMPLE (10 PERCENT) AS s, b TABLESAMPLE (5 ROWS) "
         "REPEATABLE (3), c TABLESAMPLE (BUCKET 1 OUT OF 4)", ("a", "b", "c")),
    Case("as of a version", "SELECT * FROM a VERSION AS OF 3, b FOR SYSTEM_TIME AS OF "
         "'2024-01-01', c TIMESTAMP AS OF current_date() - 1", ("a", "b", "c")),
    Case("conditions with subqueries", "SELECT * FROM a JOIN b ON a.x IN (SELECT x FROM c), d",
         ("a", "b", "c", "d")),
    Case("CASE and AND in conditions", "SELECT * FROM a JOIN b ON CASE WHEN a.x = 1 THEN b.x "
         "BETWEEN 1 AND 2 ELSE false END JOIN c", ("a", "b", "c")),

    # -- subqueries
    Case("subqueries", "SELECT (SELECT max(x) FROM a) FROM (SELECT * FROM b) WHERE x IN "
         "(SELECT y, z FROM c)", ("a", "b", "c")),
    Case("EXISTS, IN, ANY", "SELECT * FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.x = a.x) AND "
         "NOT EXISTS (FROM c) AND x IN (TABLE d)", ("a", "b", "c", "d")),
    Case("in HAVING and ORDER BY", "SELECT x, count(*) FROM a GROUP BY x HAVING count(*) > "
         "(SELECT max(n) FROM b) ORDER BY (SELECT y FROM c LIMIT 1) LIMIT 3", ("a", "b", "c")),
    Case("in calls", "SELECT coalesce((SELECT max(x) FROM a), 0, array(1, (SELECT 2 FROM b))[0]) "
         "FROM c", ("a", "b", "c")),
    Case("deep", "SELECT * FROM (SELECT * FROM (SELECT * FROM ((SELECT * FROM a) UNION ALL "
         "(SELECT * FROM b))))", ("a", "b")),
    Case("a subquery joined", "SELECT * FROM (SELECT * FROM a) s JOIN (VALUES (1)) t(x) JOIN b",
         ("a", "b")),
    Case("LATERAL subqueries", "SELECT * FROM a, LATERAL (SELECT a.x + y AS z FROM b) t LEFT JOIN "
         "LATERAL (SELECT * FROM c) u", ("a", "b", "c")),

    # -- set operations
    Case("unions", "(SELECT x FROM a) UNION ALL SELECT y FROM b ORDER BY 1, 2", ("a", "b")),
    Case("other set operations", "SELECT * FROM a INTERSECT SELECT * FROM b EXCEPT ALL (SELECT * "
         "FROM c MINUS SELECT * FROM d)", ("a", "b", "c", "d")),
    Case("UNION ALL TABLE", "SELECT * FROM a UNION ALL TABLE b", ("a", "b")),
    Case("TABLE alone", "TABLE a", ("a",)),
    Case("TABLE with tables of one name as columns", "SELECT table FROM a UNION TABLE b",
         ("a", "b")),
    Case("VALUES", "VALUES (1, 2), (3, (SELECT max(x) FROM a))", ("a",)),
    Case("VALUES in FROM", "SELECT * FROM VALUES (1, 'FROM x'), (2, 'y') AS t(n, s), a", ("a",)),
    Case("VALUES before a join", "SELECT * FROM (VALUES (1, 2), (3, 4) AS t(x, y) JOIN a) JOIN b",
         ("a", "b")),
    Case("VALUES without parentheses", "SELECT * FROM VALUES 1, 2 + x, f(3, 4) AS t, a JOIN "
         "(VALUES 1, 2) JOIN b", ("a", "b")),
    Case("VALUES with an alias", "SELECT * FROM VALUES (1), (2) t, a", ("a",)),
    Case("VALUES and an expression", "SELECT * FROM VALUES (1), (2), a", ()),
    Case("VALUES in a union in FROM", "SELECT * FROM (VALUES (1), (2) UNION ALL SELECT x FROM a), "
         "b", ("a", "b")),
    Case("VALUES in a union", "SELECT x FROM a UNION VALUES (1), (2) ORDER BY 1", ("a",)),

    # -- WITH
    Case("WITH", "WITH c AS (SELECT * FROM a), d (x) AS (SELECT * FROM c, b) SELECT * FROM d",
         ("a", "b")),
    Case("WITH without AS", "WITH c (SELECT * FROM a) SELECT * FROM c", ("a",)),
    Case("a WITH that hides what it reads", "WITH a AS (SELECT * FROM a) SELECT * FROM a", ("a",)),
    Case("a WITH that hides nothing", "WITH c AS (SELECT * FROM a) SELECT * FROM b", ("a", "b")),
    Case("a WITH in a subquery ends with it", "SELECT * FROM (WITH a AS (SELECT * FROM b) SELECT * "
         "FROM a) s JOIN a ON true", ("b", "a")),
    Case("a WITH in a subquery, after its name was read", "SELECT * FROM a JOIN (WITH a AS "
         "(SELECT * FROM b) SELECT * FROM a) s", ("a", "b")),
    Case("a WITH in a scalar subquery", "SELECT (WITH a AS (SELECT 1 AS x) SELECT x FROM a) FROM a",
         ("a",)),
    Case("a WITH around subqueries", "WITH c AS (SELECT * FROM a) SELECT * FROM b WHERE x IN "
         "(SELECT x FROM c WHERE EXISTS (SELECT 1 FROM c))", ("a", "b")),
    Case("a WITH of a WITH", "WITH c AS (WITH d AS (SELECT * FROM a) SELECT * FROM d) SELECT * "
         "FROM c, d", ("a", "d")),
    Case("an inner name hides an outer one", "WITH c AS (SELECT * FROM a) SELECT * FROM (WITH c AS "
         "(SELECT * FROM b) SELECT * FROM c), c", ("a", "b")),
    Case("an inner name built on an outer one", "WITH c AS (SELECT * FROM a) SELECT * FROM (WITH c "
         "AS (SELECT * FROM c) SELECT * FROM c)", ("a",)),
    Case("a name before it is defined", "WITH c AS (SELECT * FROM d), d AS (SELECT * FROM a) "
         "SELECT * FROM c, d", ("d", "a")),
    Case("a definition that nobody reads", "WITH c AS (SELECT * FROM a) SELECT 1", ("a",)),
    Case("a WITH in parentheses of a union", "(WITH c AS (SELECT * FROM a) SELECT * FROM c) UNION "
         "ALL SELECT * FROM c", ("a", "c")),
    Case("a WITH over a union", "WITH c AS (SELECT * FROM a) SELECT * FROM c UNION ALL TABLE c "
         "UNION ALL (SELECT * FROM c)", ("a",)),
    Case("UNION ALL TABLE of a definition", "WITH a AS (SELECT 1 AS x) SELECT * FROM b UNION ALL "
         "TABLE a", ("b",)),
    Case("names of a WITH know no case", "WITH Recent AS (SELECT * FROM a) SELECT * FROM RECENT, "
         "`rEcEnt` r", ("a",)),
    Case("a definition is one word", "WITH c AS (SELECT * FROM a) SELECT * FROM x.c, c", ("a",)),
    Case("RECURSIVE", "WITH RECURSIVE t(n) AS (SELECT x FROM a UNION ALL SELECT n + 1 FROM t WHERE "
         "n < 5), u AS (SELECT * FROM t JOIN b) SELECT * FROM u", ("a", "b")),
    Case("RECURSIVE that is not", "WITH RECURSIVE t AS (SELECT * FROM a) SELECT * FROM t", ("a",)),
    Case("RECURSIVE with a limit", "WITH RECURSIVE t(n) MAX RECURSION LEVEL 10 AS (SELECT 1 UNION "
         "ALL SELECT n + 1 FROM t, a) SELECT * FROM t", ("a",)),
    Case("WITH before FROM first", "WITH c AS (FROM a) FROM c JOIN b SELECT *", ("a", "b")),
    Case("a WITH in backticks", "WITH `c d` AS (SELECT * FROM a) SELECT * FROM `c d`", ("a",)),
    Case("a definition in parentheses", "WITH c AS ((SELECT * FROM a) UNION (SELECT * FROM b)), d "
         "((SELECT * FROM c)) SELECT * FROM d", ("a", "b")),
    Case("words that may be names", "WITH values AS (SELECT 1), first AS (SELECT * FROM a) SELECT "
         "* FROM first", ("a",)),

    # -- functions and their arguments
    Case("functions are no relations", "SELECT * FROM range(3), explode(x), a", ("a",)),
    Case("functions of tables", "SELECT * FROM f(TABLE(a) PARTITION BY x ORDER BY y), "
         "g(t => TABLE(b)), h(TABLE(SELECT * FROM c), 1), d", ("a", "b", "c", "d")),
    Case("LATERAL functions", "SELECT * FROM a, LATERAL explode(a.xs) AS t(x), b", ("a", "b")),
    Case("LATERAL VIEW names columns", "SELECT * FROM a LATERAL VIEW explode(m) t AS k, v", ("a",)),
    Case("LATERAL VIEW, again and again", "SELECT * FROM a LATERAL VIEW OUTER explode(m) t AS k, v "
         "LATERAL VIEW posexplode(array(1, 2)) u AS p, q WHERE k IN (SELECT x FROM b)",
         ("a", "b")),
    Case("parts of calls", "SELECT extract(day FROM x), trim(BOTH 'y' FROM z) FROM a", ("a",)),
    Case("parts of calls, with subqueries", "SELECT extract(day FROM (SELECT max(t) FROM b)), "
         "substring(x FROM 2 FOR 3), overlay(x PLACING y FROM 1), trim(FROM z), "
         "position('a' IN y) FROM a", ("b", "a")),
    Case("distinct from", "SELECT * FROM a WHERE x IS NOT DISTINCT FROM y AND p IS DISTINCT FROM q",
         ("a",)),
    Case("windows", "SELECT sum(x) OVER (PARTITION BY y ORDER BY z ROWS BETWEEN UNBOUNDED "
         "PRECEDING AND CURRENT ROW), lag(x) OVER w FROM a WINDOW w AS (PARTITION BY y), v AS "
         "(ORDER BY x)", ("a",)),
    Case("lambdas", "SELECT transform(xs, (x, y) -> x + y), map_filter(m, (k, v) -> k > (SELECT "
         "max(z) FROM b)) FROM a", ("b", "a")),
    Case("FILTER and WITHIN GROUP", "SELECT count(*) FILTER (WHERE x > 1), "
         "percentile_cont(0.5) WITHIN GROUP (ORDER BY x) FROM a", ("a",)),

    # -- PIVOT and the like
    Case("PIVOT", "SELECT * FROM a PIVOT (sum(x) AS s, max(x) FOR (y, z) IN ((1, 2) AS p, (3, 4))) "
         "AS t JOIN b", ("a", "b")),
    Case("UNPIVOT", "SELECT * FROM a UNPIVOT INCLUDE NULLS (v FOR n IN (p, q AS r)) AS t, b",
         ("a", "b")),
    Case("GROUPING SETS", "SELECT x, y FROM a GROUP BY GROUPING SETS ((x, y), (x), ()) ORDER BY x, "
         "y", ("a",)),
    Case("clauses in a row", "SELECT DISTINCT x FROM a WHERE x > 1 CLUSTER BY x LIMIT 5 OFFSET 2",
         ("a",)),
    Case("SORT, DISTRIBUTE, QUALIFY", "SELECT x, y FROM a DISTRIBUTE BY x, y SORT BY x, y", ("a",)),
    Case("hints", "SELECT /*+ BROADCAST(b), MERGE(a) */ * FROM a JOIN b", ("a", "b")),
    Case("TRANSFORM", "SELECT TRANSFORM (x, y) USING 'cat' AS (p, q) FROM a", ("a",)),

    # -- names
    Case("backticks", "SELECT * FROM `A b`", ("A b",)),
    Case("a backtick in backticks", "SELECT * FROM `a``b`, `from`", ("a`b", "from")),
    Case("names with marks", "SELECT * FROM `a-b`, `c.d`, `größe`, _1",
         ("a-b", "c.d", "größe", "_1")),
    Case("other catalogs", "SELECT * FROM parquet.`x`, a, x . y, `p`.`q`.r", ("a",)),
    Case("names that are words elsewhere", "SELECT * FROM date, year AS month, time, view t",
         ("date", "year", "time", "view")),
    Case("names with digits in front", "SELECT * FROM 2024_events JOIN 1a ON true, `3`",
         ("2024_events", "1a", "3")),
    Case("words as names", "SELECT * FROM table, values, stream, c t JOIN identifier",
         ("table", "values", "stream", "c", "identifier")),
    Case("options of relations", "SELECT * FROM a WITH ('k' = 'v'), b", ("a", "b")),
    Case("SELECT but for columns", "SELECT * EXCEPT (x, y), a.* EXCEPT (z) FROM a", ("a",)),
    Case("IDENTIFIER", "SELECT * FROM IDENTIFIER('a'), IDENTIFIER('x.y'), b", ("a", "b")),
    Case("columns that are called as clauses", "SELECT a.`from`, a.`join` FROM a", ("a",)),
    Case("columns of columns", "SELECT a.x.y, b.* FROM a, b WHERE a.from = 1", ("a", "b")),
    Case("STREAM", "SELECT * FROM STREAM a, STREAM(b)", ("a", "b")),

    # -- strings and comments
    Case("strings and comments", "SELECT 'FROM b', \"FROM c\" -- FROM d\n FROM a", ("a",)),
    Case("strings with escapes", r"""SELECT 'it\'s FROM b', "\"FROM c", r'\' FROM a""", ("a",)),
    Case("strings side by side", "SELECT 'x' ' FROM b ' FROM a", ("a",)),
    Case("comments", "SELECT /* FROM b /* FROM c */ JOIN d */ * /**/ FROM/*,*/a--,b", ("a",)),
    Case("comments that go on", "SELECT 1 -- FROM b \\\n FROM c\n FROM a", ("a",)),
    Case("parentheses in strings", "SELECT ')' FROM (SELECT '(' FROM a), b", ("a", "b")),
    Case("colons, casts, arrows", "SELECT x::int, m['k'], xs[0], x:y FROM a", ("a",)),
    Case("intervals and dates", "SELECT INTERVAL 1 DAY, DATE '2024-01-01' FROM a WHERE t > "
         "INTERVAL '1' HOUR", ("a",)),

    # -- pipes
    Case("pipes", "FROM a |> WHERE x > 1 |> JOIN b USING (x) |> SELECT x, y |> ORDER BY x, y",
         ("a", "b")),
    Case("pipes with set operations", "FROM a |> UNION ALL (SELECT * FROM b) |> EXCEPT TABLE c |> "
         "INTERSECT FROM d", ("a", "b", "c", "d")),
    Case("pipes with aggregates", "TABLE a |> AGGREGATE sum(x) AS s, count(*) GROUP BY y |> EXTEND "
         "s + 1 AS t, (SELECT 2 FROM b) AS u |> DROP t, u |> SET s = 1, x = 2", ("a", "b")),
    Case("pipes in a WITH", "WITH c AS (FROM a |> WHERE x > 1) FROM c |> AS t |> JOIN b ON true",
         ("a", "b")),
    Case("pipes in a subquery", "SELECT * FROM (FROM a |> SELECT x, y), b", ("a", "b")),
    Case("pipes with PIVOT and samples", "FROM a |> PIVOT (sum(x) FOR y IN (1, 2)) |> TABLESAMPLE "
         "(10 PERCENT) |> WHERE p > 1", ("a",)),
    Case("a pipe from VALUES", "VALUES (1), (2) AS t(x) |> WHERE x IN (SELECT x FROM a)", ("a",)),
]


NAMES = ("a", "b", "c", "d", "`e f`")


def made_query(chance: Random, depth: int = 2) -> str:
    """A query that Spark can parse, of few names, so that definitions hide relations."""
    made = _Maker(chance)
    return made.query(depth)


class _Maker:
    """Makes queries from a generator of random numbers; `depth` bounds how deep they nest."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def query(self, depth: int) -> str:
        definitions = ""
        if depth and self._chance.random() < 0.5:
            count = self._chance.randint(1, 2)
            names = self._chance.sample(NAMES, count)
            columns = [self._one_of("", "(x, y) ") for _ in range(count)]
            definitions = "WITH " + ", ".join(
                f"{name} {column}{self._one_of('AS ', '')}({self.query(depth - 1)})"
                for name, column in zip(names, columns, strict=True)) + " "
        terms = [self._term(depth) for _ in range(self._chance.choice((1, 1, 1, 2)))]
        operation = self._one_of(" UNION ALL ", " EXCEPT ", " INTERSECT DISTINCT ", " MINUS ")
        ending = self._one_of("", "", " ORDER BY x, y", " LIMIT 3", " |> WHERE x > 1",
                              f" |> LEFT JOIN {self._relation(depth)} USING (x)")
        return definitions + operation.join(terms) + ending

    def _term(self, depth: int) -> str:
        kind = self._chance.randrange(8)
        if kind == 0:
            return f"TABLE {self._name()}"
        if kind == 1 and depth:
            return f"({self.query(depth - 1)})"
        if kind == 2:
            return f"FROM {self._relations(depth)} SELECT x, y"
        if kind == 3:
            return "VALUES (1, 2), (3, 4)"
        columns = f"SELECT {self._value(depth)} AS x, {self._value(depth)} AS y"
        grouped = self._one_of("", " GROUP BY x, y", f" GROUP BY x HAVING {self._test(depth)}")
        return f"{columns} FROM {self._relations(depth)} WHERE {self._test(depth)}{grouped}"

    def _relations(self, depth: int) -> str:
        text = self._relation(depth)
        for _ in range(self._chance.choice((0, 0, 1, 2))):
            other = self._relation(depth)
            text += self._one_of(
                f", {other}", f" JOIN {other} ON {self._test(depth)}", f" CROSS JOIN {other}",
                f" LEFT ANTI JOIN {other} USING (x, y)", f", LATERAL explode(xs) AS l(z), {other}")
        return text + self._one_of("", "", " LATERAL VIEW explode(m) lv AS k, v")

    def _relation(self, depth: int) -> str:
        kind = self._chance.randrange(8)
        alias = self._one_of("", " AS t", " t(x, y)")
        if kind == 0 and depth:
            return f"({self.query(depth - 1)}){alias}"
        if kind == 1 and depth:
            return f"({self._relation(0)} JOIN {self._relation(depth - 1)}){alias}"
        if kind == 2:
            return "VALUES (1, 2), (3, 4) AS t(x, y)"
        if kind == 3:
            return self._one_of("range(3)", f"f(TABLE({self._name()}), 1)", "other.a", "x.`b`.c")
        sample = self._one_of("", "", " TABLESAMPLE (10 PERCENT)")
        return self._name() + sample + alias

    def _value(self, depth: int) -> str:
        kind = self._chance.randrange(6)
        if kind == 0 and depth:
            return f"({self.query(depth - 1)})"
        return self._one_of("x", "extract(DAY FROM t)", "'FROM b'", "((x + 1) * y)", "a.x",
                            "sum(x) OVER (PARTITION BY y ORDER BY x)")

    def _test(self, depth: int) -> str:
        kind = self._chance.randrange(6)
        if kind == 0 and depth:
            return f"EXISTS ({self.query(depth - 1)})"
        if kind == 1 and depth:
            return f"x IN ({self.query(depth - 1)})"
        return self._one_of("x = y", "(x IS NOT DISTINCT FROM y)", "x IN (1, 2)",
                            f"f(x, y) > {self._value(depth)}")

    def _name(self) -> str:
        return self._one_of(*NAMES, "A", "B")

    def _one_of(self, *texts: str) -> str:
        return self._chance.choice(texts)
