"""A real S3 server for tests: moto's, as a process of its own, in memory, on a free port.

It honours conditional puts exactly, also in races.  Any credentials are accepted.
"""

import os
import re
import sys
import urllib.request
from itertools import count
from types import TracebackType
from typing import Self

from tests.harness.processes import LineProcess
from tests.harness.progress import wait_for

STARTED = re.compile(r"Running on http://127\.0\.0\.1:(\d+)")
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "swordfish"}


class S3Server:
    """The server, while it is entered; each test gets a bucket of its own."""

    def __init__(self) -> None:
        self.port = 0
        self._buckets = count(1)
        self._process: LineProcess | None = None

    def bucket(self) -> str:
        """The name of a new, empty bucket."""
        name = f"bucket-{next(self._buckets)}"
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/{name}", method="PUT",
            headers={"Authorization": "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/x"})
        with urllib.request.urlopen(request, timeout=30) as response:
            assert response.status == 200
        return name

    def url(self, bucket: str, *, port: int | None = None, more: str = "") -> str:
        """The URL of a store in `bucket`, through a proxy's `port` if one is given."""
        return (f"s3://{bucket}/pre/fix?endpoint=http://127.0.0.1:{port or self.port}"
                f"&timeout_ms=20000{more}")

    def __enter__(self) -> Self:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        environment.pop("PYTHONPATH", None)
        self._process = process = LineProcess(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], environment)
        lines: list[str] = []

        def started() -> bool:
            lines.extend(process.take_lines())
            found = STARTED.search("\n".join(lines))
            self.port = int(found[1]) if found else 0
            return found is not None

        wait_for(started, what=process.tail)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.kill()
