"""The views' part of the demo: change events of a small shop, two sources, a view, its changes.

Statements run through the code of `quipu sql`, in one session, because starting Spark takes long.
"""

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Producer

from quipu.cli.sql.engine import ResultRows, RowChanges, StatementDone, StatementResult
from quipu.cli.sql.output import Block, Writer
from quipu.cli.sql.progress import wait_until_current
from quipu.cli.sql.runner import EngineRunner
from quipu.cli.sql.spark_engine import SparkEngine
from quipu.pipeline.sql.parser import pieces
from tests.harness.node import RunningNode
from tools.demo_output import COMMAND_SECONDS_MAX, check, quipu, say, show, step, typed

CUSTOMERS = "shop.customers"
ORDERS = "shop.orders"
SEEN_SECONDS_MAX = 60.0
# A Java that runs for half a minute gains nothing from optimizing its bytecode for long.
QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -Xshare:auto"}

SOURCES = f"""
CREATE SOURCE customers (name text, city text)
  FROM KAFKA TOPIC '{CUSTOMERS}'
  KEY FORMAT TEXT VALUE FORMAT JSON
  INCLUDE KEY AS customer, TIMESTAMP AS told_at, OFFSET
  ENVELOPE UPSERT;

CREATE SOURCE orders (id bigint, customer text, amount bigint, PRIMARY KEY (id) NOT ENFORCED)
  FROM KAFKA TOPIC '{ORDERS}'
  FORMAT JSON
  INCLUDE OFFSET AS log_offset, DEBEZIUM OP AS op
  ENVELOPE DEBEZIUM;
"""
VIEW = """
CREATE MATERIALIZED VIEW spending AS
  SELECT c.name, c.city, count(*) AS orders, sum(o.amount) AS amount,
         max(o.log_offset) AS last_offset
  FROM orders o JOIN customers c ON o.customer = c.customer
  GROUP BY c.name, c.city;
"""
Row = tuple[object, ...]


def run_demo(node: RunningNode, state: Path) -> None:
    """The steps, in order."""
    shop = Shop(node)
    step("Change events of a shop", "Customers by key, and orders as Debezium tells of them.")
    for topic in (CUSTOMERS, ORDERS):
        quipu(node, "topic", "create", topic)
    open_shop(shop)
    quipu(node, "consume", ORDERS, "--exit", "--count", "2")

    step("SQL on Spark", "The only step that takes its time: Spark starts.")
    begun = time.monotonic()
    engine = SparkEngine(state, bootstrap=node.bootstrap, master="local[2]", settings=QUICK)
    with contextlib.closing(engine), EngineRunner(engine) as runner:
        typed(f"quipu sql --state {state.name}")
        check(engine.pipeline.spark.range(2).count() == 2, "Spark cannot count to two")
        say(f"Spark is there after {time.monotonic() - begun:.1f} s.")
        show_views(shop, runner)
    show_state(state)


def show_views(shop: "Shop", runner: EngineRunner) -> None:
    """Create the sources and a view of both, and show how changes appear in it."""
    run(runner, SOURCES)
    names = [row[0] for row in run(runner, "SHOW COLUMNS FROM customers;")]
    check(names == ["customer", "name", "city", "told_at", "offset"], f"columns are {names}")
    say("Metadata comes after the data, and only where somebody asks for it.")

    step("A view that is kept up to date", "A join of both topics; a streaming query maintains it.")
    run(runner, VIEW)
    check(wait_until_current(runner, SEEN_SECONDS_MAX), "the view did not catch up")
    found = run(runner, "SELECT * FROM spending ORDER BY name;")
    check(found == shop.spending(), f"the view holds {found}, not {shop.spending()}")

    step("Follow its changes", "SUBSCRIBE: the rows there are, and then whatever changes.")
    follow(shop, runner)

    step("How far it is", "Rows, rates and lag of everything that is kept up to date.")
    check(wait_until_current(runner, SEEN_SECONDS_MAX), "the view did not catch up")
    lags = [each.lag for each in runner.engine.progress()]
    run(runner, "SHOW PROGRESS;")
    check(bool(lags) and not any(lags), f"the lag is {lags}")
    say("Nothing is waiting.")


def follow(shop: "Shop", runner: EngineRunner) -> None:
    """Change the shop while the view is subscribed to."""
    result = ask(runner, "SUBSCRIBE TO spending;")
    assert isinstance(result, RowChanges)
    writer = Writer(result.headings, as_json=False)
    seen: Counter[Row] = Counter()
    blocks = runner.follow(result.blocks, [])
    until(blocks, writer, seen, shop.spending())
    for about, change in shop.changes():
        say(about)
        change()
        begun = time.monotonic()
        until(blocks, writer, seen, shop.spending())
        say(f"Seen {time.monotonic() - begun:.1f} s after it was produced.")
    blocks.close()
    check(not any(row[0] == "Grace" for row in seen), "a deleted customer is still in the view")


def until(blocks: Iterator[Block], writer: Writer, seen: Counter[Row], wanted: list[Row]) -> None:
    """Take changes until they add up to the wanted rows."""
    deadline = time.monotonic() + SEEN_SECONDS_MAX
    while sorted(seen.elements()) != wanted:
        check(time.monotonic() < deadline, f"the changes add up to {dict(seen)}, not to {wanted}")
        block = next(blocks)
        if block:
            writer.write(block)
        for _, diff, *row in block:
            seen[tuple(row)] += diff
            check(seen[tuple(row)] >= 0, f"{row} went before it came")
        seen += Counter()  # forget rows that are gone


class Shop:
    """What the shop knows itself; the view must come to the same."""

    def __init__(self, node: RunningNode) -> None:
        self._producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0})
        self._customers: dict[str, dict[str, str]] = {}
        self._orders: dict[int, dict[str, object]] = {}
        self._offsets: dict[int, int] = {}
        self._next_offset = 0

    def customer(self, key: str, **about: str) -> None:
        """Tell of a customer; without anything about one, that there is no such customer."""
        self._customers.pop(key, None)
        if about:
            self._customers[key] = about
        self._send(CUSTOMERS, key, about or None)

    def order(self, number: int, customer: str = "", amount: int = 0) -> None:
        """Tell of an order; without an amount, that it is cancelled."""
        before = self._orders.pop(number, None)
        after = {"id": number, "customer": customer, "amount": amount} if amount else None
        if after is not None:
            self._orders[number] = after
        op = "d" if after is None else "c" if before is None else "u"
        self._offsets[number] = self._next_offset
        self._next_offset += 1
        self._send(ORDERS, str(number), {"before": before, "after": after, "op": op})

    def spending(self) -> list[Row]:
        """The view, by hand."""
        found = []
        for key, about in self._customers.items():
            mine = [order for order in self._orders.values() if order["customer"] == key]
            if mine:
                offsets = [self._offsets[int(str(order["id"]))] for order in mine]
                amount = sum(int(str(order["amount"])) for order in mine)
                found.append((about["name"], about["city"], len(mine), amount, max(offsets)))
        return sorted(found)

    def changes(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """What happens while somebody looks."""
        yield "Ada moves to Lima.", lambda: self.customer("ada", name="Ada", city="Lima")
        yield "Order 2 becomes larger.", lambda: self.order(2, "ada", 25)
        yield "Order 4 is cancelled.", lambda: self.order(4)
        yield "Grace is deleted, by a message without a value.", lambda: self.customer("grace")

    def _send(self, topic: str, key: str, value: object) -> None:
        data = None if value is None else json.dumps(value).encode()
        self._producer.produce(topic, data, key.encode())
        left = self._producer.flush(COMMAND_SECONDS_MAX)
        check(left == 0, f"{topic} took no message")


def open_shop(shop: Shop) -> None:
    """The shop before anybody looks."""
    shop.customer("ada", name="Ada", city="Cusco")
    shop.customer("grace", name="Grace", city="Quito")
    shop.customer("mary", name="Mary", city="Lima")
    for number, (customer, amount) in enumerate(
        [("ada", 30), ("ada", 12), ("grace", 7), ("mary", 50), ("mary", 9)], start=1
    ):
        shop.order(number, customer, amount)


def run(runner: EngineRunner, script: str) -> list[Row]:
    """Run statements, print them and their results; return the rows of the last one."""
    rows: list[Row] = []
    for piece in pieces(script):
        text = script[piece.span.start:piece.span.end]
        lines = text.splitlines()
        typed("\n  -> ".join(lines) + ";", prompt="sql>")
        result = ask(runner, f"{text};")
        match result:
            case StatementDone(told):
                say(told)
            case ResultRows(headings, blocks):
                rows = [tuple(row) for block in blocks for row in block]
                Writer(headings, as_json=False).write(rows)
            case RowChanges():
                raise AssertionError("changes have no end")
    return rows


def ask(runner: EngineRunner, text: str) -> StatementResult:
    (piece,) = pieces(text)
    engine = runner.engine
    return runner.wait_for(lambda: engine.run(text, piece), engine.activity)


def show_state(state: Path) -> None:
    """Print what is on the disk at the end."""
    step("Where it is kept", "Catalog, state and checkpoints: plain files; the next run goes on.")
    found = sorted(path for path in state.rglob("*") if path.is_file())
    sizes: Counter[str] = Counter()
    for path in found:
        sizes["/".join(path.relative_to(state).parts[:3])] += path.stat().st_size
    typed(f"find {state.name}")
    show(f"{size:>10,}  {name}" for name, size in sorted(sizes.items()))
    check((state / "catalog.json").exists(), "there is no catalog")
