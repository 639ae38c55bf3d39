"""An S3 server for a measurement: moto's, as a process of its own, in memory, on a free port.

    with s3_server(directory) as url:      # None if moto is not installed
        ...

It is one Python process, so it is slower than any real store; but requests, signatures and the
network are those of S3.  Its objects are lost when it ends.
"""

import contextlib
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from quipu.bench.errors import BenchError
from quipu.launch.ports import HOST, free_ports

BUCKET: Final = "bench"
START_SECONDS_MAX: Final = 60.0
PAUSE_SECONDS: Final = 0.1
_CREDENTIALS: Final = "aws_access_key_id = bench\naws_secret_access_key = bench\n"  # any will do
_AUTHORIZATION: Final = "AWS4-HMAC-SHA256 Credential=bench/20260101/us-east-1/s3/aws4_request"


@contextlib.contextmanager
def s3_server(directory: str) -> Iterator[str | None]:
    """The URL of an empty bucket; None if moto is not installed."""
    if find_spec("moto") is None or find_spec("flask") is None:
        yield None
        return
    (port,) = free_ports(1)
    credentials = Path(directory).absolute() / "s3-credentials"
    credentials.write_text(_CREDENTIALS, encoding="utf-8")
    process = subprocess.Popen(  # noqa: S603 a module of this Python
        [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        endpoint = f"http://{HOST}:{port}"
        _make_bucket(process, endpoint)
        yield f"s3://{BUCKET}?endpoint={endpoint}&credentials={credentials}"
    finally:
        process.kill()
        process.wait()
        credentials.unlink(missing_ok=True)


def _make_bucket(process: "subprocess.Popen[bytes]", endpoint: str) -> None:
    """Wait until the server answers, and create the bucket."""
    request = urllib.request.Request(  # noqa: S310 the server started above
        f"{endpoint}/{BUCKET}", method="PUT", headers={"Authorization": _AUTHORIZATION})
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            urllib.request.urlopen(request, timeout=10.0).close()  # noqa: S310 as above
        except (urllib.error.URLError, OSError) as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"the S3 server at {endpoint} does not answer: {error}") from error
            time.sleep(PAUSE_SECONDS)
        else:
            return
