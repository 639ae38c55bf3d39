"""`make docs`: regenerates the generated pages; with --check, reports which are out of date.

Generated pages are committed, so that they can be read without running anything; `make check` fails
if one is out of date.  A generator is a tool that writes one page, and with --check compares it.
"""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
GENERATORS = (
    "api_table",  # docs/reference/apis.md: keys and versions served
    "compatibility_page",  # docs/reference/kafka-compatibility.md: what differs from Kafka
    "command_reference",  # docs/reference/commands.md: every command, as its help tells
    "kafka_settings_table",  # docs/reference/kafka-settings.md: what becomes of Kafka's settings
    "metrics_table",  # docs/operating/metrics.md: the table of metrics in it
    "placement_pictures",  # docs/concepts/*.svg: states of racks, a reconciliation
    "settings_table",  # docs/reference/settings.md: every setting, its default and meaning
    "spec_coverage",  # docs/spec-coverage.md: which test shows which requirement
)


def main() -> int:
    """Run every generator; the exit code is the number of those that failed."""
    failed = 0
    for name in GENERATORS:
        command = [sys.executable, "-m", f"tools.{name}", *sys.argv[1:]]
        failed += subprocess.run(command, cwd=REPOSITORY, check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
