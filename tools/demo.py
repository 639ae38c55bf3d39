"""`make demo`: shows a node, its tier, a diskless topic, and a view on Spark, step by step.

Everything is real: a node in a process of its own on a free port, a stock Kafka client, the
commands of the command line, a `kill -9` in the middle, and Spark.  Every claim is checked; the
exit code is 0 only if all of them are true.  All files are removed at the end.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.panel import Panel
from rich.text import Text

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from quipu.model.errors import QuipuError  # noqa: E402 after the line above, as the others
from tests.harness.node import RunningNode  # noqa: E402
from tools import demo_diskless, demo_node, demo_shop, demo_tier  # noqa: E402
from tools.demo_output import BrokenPromise, console  # noqa: E402

FAILURES = (BrokenPromise, AssertionError, QuipuError, subprocess.SubprocessError, OSError)


def main() -> int:
    """Run the demo; 0 if everything that it says was true."""
    begun = time.monotonic()
    title = "quipu: a Kafka-compatible log of typed batches, and views of it on Spark"
    console.print(Panel(Text(title, justify="center")))
    with tempfile.TemporaryDirectory(prefix="quipu-demo-") as folder:
        node = RunningNode(Path(folder) / "data", settings={
            **demo_tier.SETTINGS, **demo_diskless.SETTINGS})
        try:
            demo_node.run_demo(node)
            demo_tier.run_demo(node)
            demo_diskless.run_demo(node)
            demo_shop.run_demo(node, Path(folder) / "quipu-sql")
            demo_node.end_demo(node)
        except FAILURES as error:
            console.print("\n[bold red]The demo failed:[/]", Text(str(error)))
            return 1
        finally:
            node.kill()
    seconds = time.monotonic() - begun
    console.print(f"\n[bold green]All of it held.[/]  {seconds:.0f} s, and nothing is left behind.")
    console.print("Your turn:  [bold].venv/bin/quipu start[/]   then see docs/quickstart.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
