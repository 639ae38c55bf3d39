"""Kafka Connect and MirrorMaker, each a JVM of its own, from the jars of a folder."""

from collections.abc import Mapping
from pathlib import Path

from tests.harness.node import environment
from tests.harness.processes import LineProcess

STANDALONE = "org.apache.kafka.connect.cli.ConnectStandalone"
MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"
OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx512m",
           "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


def write_properties(path: Path, settings: Mapping[str, str]) -> str:
    """A file of settings, as Java reads them."""
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


def start(jars: Path, name: str, *words: str) -> LineProcess:
    """Start a program, which runs until it is killed, at the latest with this thread."""
    return LineProcess(["java", *OPTIONS, "-cp", f"{jars}/*", name, *words], environment(),
                       ends_with_parent=True)
