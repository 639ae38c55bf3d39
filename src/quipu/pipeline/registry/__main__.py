"""python -m quipu.pipeline.registry [--host H] [--port P] [--file F]

Serves until SIGTERM or Ctrl-C; prints one line, `registry ready URL`, when it does.
"""

import argparse
import signal
import sys
from pathlib import Path
from threading import Event

from quipu.pipeline.registry.server import NoRegistryFile, RegistryServer


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m quipu.pipeline.registry",
                                     description="A small schema registry.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8081, help="port to listen on; 0: a free one")
    parser.add_argument("--file", type=Path, help="store all schemas in this file")
    options = parser.parse_args()
    asked_to_stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked_to_stop.set())
    try:
        server = RegistryServer(options.host, options.port, path=options.file)
    except (OSError, OverflowError, NoRegistryFile) as error:
        print(f"registry: {error}", file=sys.stderr)  # noqa: T201 a command's own error
        return 1
    with server:
        print(f"registry ready {server.url}", flush=True)  # noqa: T201 the line others wait for
        asked_to_stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
