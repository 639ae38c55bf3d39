"""The settings of a client, spelled as Kafka's clients spell them.

`ClientSettings` is the table and the typed value at once (model/settings_types).  Names of Java's
client and of librdkafka are both taken where they differ; `ALIASES` has the pairs.

Invariants
    client.A1  every setting is used by the client, or says in `ignored` why it is not
    client.A2  an unknown name is refused; the error names the nearest known one
    client.A3  a name that Spark refuses is refused; the error says what to use instead
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from quipu.model import settings as tables
from quipu.model.errors import SettingError
from quipu.model.nearest import nearest
from quipu.model.settings_types import (
    INT_MAX,
    LONG_MAX,
    PORT_MAX,
    Address,
    Setting,
    attribute_name,
    boolean,
    choice,
    int32,
    int64,
    optional_secret,
    optional_text,
    settings_of,
    text,
)

_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_DAY_MS: Final = 86_400_000
_NOT_IN_A_GROUP: Final = "the reader chooses its partitions itself and joins no group."
_NO_POLL: Final = "batches are handed out whole."
_PEM: Final = ("PEM",)
BOOTSTRAP_MAX: Final = 1_000

PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"
READ_COMMITTED: Final = "read_committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How to reach a cluster, and how to read from it."""

    # Which brokers, and under which names.
    bootstrap_servers: str = text(
        "localhost:9092", "Brokers to connect to first, as HOST:PORT with commas between them.")
    client_id: str = text("quipu-client", "Name under which brokers know this client.")
    client_rack: str | None = optional_text(
        "Rack or zone of this client: brokers may send it to a replica nearby.")
    group_id: str | None = optional_text(
        "Group whose offsets are committed, so that tools can show the lag.")
    allow_auto_create_topics: bool = boolean(
        "Let the broker create a requested topic that does not exist.", default=False)
    exclude_internal_topics: bool = boolean(
        "Leave out the cluster's own topics where topics are found by a pattern.", default=True)

    # How long to wait.
    request_timeout_ms: int = int32(30_000, "Longest wait for one response.", low=1, high=_DAY_MS)
    default_api_timeout_ms: int = int32(
        60_000, "Longest time for one call, with all of its retries.", low=1, high=_DAY_MS)
    socket_connection_setup_timeout_ms: int = int32(
        10_000, "Longest wait for a connection.", low=1, high=_DAY_MS)
    retry_backoff_ms: int = int32(
        100, "Pause before the first retry; it doubles.",
        low=0, high=_DAY_MS)
    retry_backoff_max_ms: int = int32(1_000, "Longest pause between retries.", low=0, high=_DAY_MS)
    metadata_max_age_ms: int = int64(
        300_000, "Age at which metadata is requested again.", low=0, high=LONG_MAX)

    # How much to read.
    isolation_level: str = choice(
        "read_uncommitted", ("read_uncommitted", READ_COMMITTED),
        "Whether records of aborted and open transactions are left out.")
    fetch_min_bytes: int = int32(
        1, "Bytes for which a broker waits before it responds.", low=0, high=_GIB)
    fetch_max_wait_ms: int = int32(
        500, "Longest wait of a broker for fetch.min.bytes.",
        low=0, high=_DAY_MS)
    fetch_max_bytes: int = int32(
        50 * _MIB, "Largest size of a response, all partitions together.", low=1, high=_GIB)
    max_partition_fetch_bytes: int = int32(
        4 * _MIB, "Largest size of one partition's part of a response.", low=1, high=_GIB)
    check_crcs: bool = boolean(
        "Check the checksums of batches.", default=True, ignored="they are always checked.")
    receive_buffer_bytes: int = int32(
        -1, "Size of the socket's receive buffer, -1: the system's.", low=-1, high=_GIB)
    send_buffer_bytes: int = int32(
        -1, "Size of the socket's send buffer, -1: the system's.", low=-1, high=_GIB)

    # How the broker is authenticated.
    security_protocol: str = choice(
        PLAINTEXT, (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL),
        "Whether connections are encrypted (SSL) and authenticate the client (SASL).")
    ssl_truststore_location: str | None = optional_text(
        "File of the certificates to trust, PEM; without one those of the system.")
    ssl_truststore_certificates: str | None = optional_text(
        "The certificates to trust, as PEM text.")
    ssl_truststore_type: str = choice("PEM", _PEM, "Format of the truststore.")
    ssl_truststore_password: str | None = optional_secret(
        "Password of the truststore.", ignored="a PEM truststore has none.")
    ssl_endpoint_identification_algorithm: str = choice(
        "https", ("https", "none", ""), "Whether a broker's certificate must name its host.")
    enable_ssl_certificate_verification: bool = boolean(
        "Whether a broker's certificate must be trusted at all.", default=True)

    # How this client is authenticated.
    ssl_keystore_location: str | None = optional_text(
        "File of this client's certificate chain and key, PEM.")
    ssl_keystore_certificate_chain: str | None = optional_text(
        "This client's certificate chain, as PEM text.")
    ssl_keystore_key: str | None = optional_secret("This client's key, as PEM text.")
    ssl_keystore_type: str = choice("PEM", _PEM, "Format of the keystore.")
    ssl_keystore_password: str | None = optional_secret(
        "Password of the keystore.", ignored="a PEM keystore has none; see ssl.key.password.")
    ssl_key_location: str | None = optional_text(
        "File of this client's key, PEM, if it is not in ssl.keystore.location.")
    ssl_key_password: str | None = optional_secret("Password of this client's key.")
    sasl_mechanism: str = choice(
        "PLAIN", ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), "How this client authenticates.")
    sasl_username: str | None = optional_text("Name to authenticate with.")
    sasl_password: str | None = optional_secret("Password to authenticate with.")
    sasl_jaas_config: str | None = optional_secret(
        "Name and password as Java's client takes them: ...LoginModule required username=\"u\" "
        'password="p";')

    # Accepted and without effect, so that a file of settings for another client can be used.
    group_instance_id: str | None = optional_text("Name within a group.", ignored=_NOT_IN_A_GROUP)
    group_protocol: str = choice(
        "classic", ("classic", "consumer"), "Protocol of the group.", ignored=_NOT_IN_A_GROUP)
    session_timeout_ms: int = int32(
        45_000, "Time without heartbeats after which a member is removed.", ignored=_NOT_IN_A_GROUP,
        low=0, high=INT_MAX)
    heartbeat_interval_ms: int = int32(
        3_000, "Pause between heartbeats.", ignored=_NOT_IN_A_GROUP,
        low=0, high=INT_MAX)
    partition_assignment_strategy: str = text(
        "range", "How partitions are assigned to members.", ignored=_NOT_IN_A_GROUP)
    max_poll_records: int = int32(
        500, "Records of one poll.", ignored=_NO_POLL,
        low=0, high=INT_MAX)
    max_poll_interval_ms: int = int32(
        300_000, "Pause between polls.", ignored=_NO_POLL,
        low=0, high=INT_MAX)
    auto_commit_interval_ms: int = int32(
        5_000, "Pause between commits.", ignored=_NOT_IN_A_GROUP,
        low=0, high=INT_MAX)
    connections_max_idle_ms: int = int64(
        540_000, "Age at which an idle connection is closed.",
        ignored="a connection that the broker closed is opened again.", low=-1, high=LONG_MAX)
    reconnect_backoff_ms: int = int32(
        50, "Pause before connecting again.", ignored="retry.backoff.ms is used.",
        low=0, high=INT_MAX)
    reconnect_backoff_max_ms: int = int32(
        1_000, "Longest pause before connecting again.", ignored="retry.backoff.max.ms is used.",
        low=0, high=INT_MAX)
    client_dns_lookup: str = text(
        "use_all_dns_ips", "How host names are looked up.", ignored="every address is tried.")
    ssl_protocol: str = text(
        "TLSv1.3", "Version of TLS.", ignored="the newest that both sides know is used.")
    ssl_enabled_protocols: str = text(
        "TLSv1.2,TLSv1.3", "Versions of TLS.", ignored="1.2 and 1.3 are enabled.")
    enable_metrics_push: bool = boolean(
        "Push metrics to the broker.", default=True, ignored="there are none to push.")

    @property
    def read_committed(self) -> bool:
        """Are records of aborted and open transactions left out?"""
        return self.isolation_level == READ_COMMITTED

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol in (SSL, SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol in (SASL_PLAINTEXT, SASL_SSL)


CLIENT: Final[Mapping[str, Setting]] = settings_of(ClientSettings)  # client.A1

ALIASES: Final[Mapping[str, str]] = {  # librdkafka's names
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "socket.timeout.ms": "request.timeout.ms",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
assert all(name in CLIENT for name in ALIASES.values())

_BY_OPTIONS: Final = "the option startingOffsets says where reading begins"
_BYTES: Final = "keys and values are bytes; decode them in the query"
REFUSED: Final[Mapping[str, str]] = {
    "auto.offset.reset": _BY_OPTIONS,
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "enable.auto.commit": "what was read is remembered by the reader's checkpoint",
    "interceptor.classes": "no Java class can be called here",
}

_JAAS: Final = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\s+(?P<options>.*?);\s*",
    re.IGNORECASE | re.DOTALL)
_JAAS_OPTION: Final = re.compile(
    r"\s*(?P<name>[\w.]+)\s*=\s*(?:\"(?P<quoted>(?:[^\"\\]|\\.)*)\"|(?P<plain>[^\s\";]+))\s*")


def client_settings(given: Mapping[str, str]) -> ClientSettings:
    """Settings from names and texts, checked one by one and then together."""
    values: dict[str, object] = {}
    for name, value in given.items():
        known = ALIASES.get(name, name)
        check_name(name)
        if attribute_name(known) in values:
            raise SettingError(f"{name} and {known} say the same: give one of them")
        values[attribute_name(known)] = _parse(known, name, value)
    settings = ClientSettings(**values)  # type: ignore[arg-type]  # checked by parse
    bootstrap(settings)
    return _with_login(settings) if settings.uses_sasl else settings


def check_name(name: str) -> None:
    """Raise for an unknown name (client.A2), and for one that Spark refuses (client.A3)."""
    if name in REFUSED:
        raise SettingError(f"{name} cannot be set: {REFUSED[name]}")
    if name not in CLIENT and name not in ALIASES:
        near = nearest(name, [*CLIENT, *ALIASES], cutoff=0.5)
        hint = f"; did you mean {near}?" if near else ""
        raise SettingError(f"unknown setting {name[:100]}{hint}")


def bootstrap(settings: ClientSettings) -> list[Address]:
    """The addresses of bootstrap.servers."""
    found = []
    for item in settings.bootstrap_servers.split(","):
        if "@" in item:
            raise SettingError("bootstrap.servers: an address is HOST:PORT, without an @; give the "
                               "user with sasl.username and sasl.password")
        host, colon, port = item.strip().rpartition("://")[2].rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        if not (host and colon and port.isascii() and port.isdigit() and len(port) < 6
                and 0 < int(port) <= PORT_MAX):
            raise SettingError(
                f"bootstrap.servers={item.strip()[:80]}: must be HOST:PORT, with commas between "
                "several")
        found.append(Address(host, int(port)))
    if len(found) > BOOTSTRAP_MAX:
        raise SettingError(f"bootstrap.servers names {len(found)} brokers; a few are enough")
    return found


def parse_jaas(config: str) -> tuple[str, str]:
    """Name and password out of a sasl.jaas.config of Java's client."""
    shape = 'org.apache.kafka.common.security....LoginModule required username="u" password="p";'
    found = _JAAS.fullmatch(config)
    if found is None:
        raise SettingError(f"sasl.jaas.config: must be {shape}")
    if not found["module"].endswith(("PlainLoginModule", "ScramLoginModule")):
        raise SettingError(f"sasl.jaas.config: {found['module'][:100]} is not supported; "
                           "PlainLoginModule and ScramLoginModule are")
    options: dict[str, str] = {}
    position = 0
    text_ = found["options"]
    while position < len(text_):
        option = _JAAS_OPTION.match(text_, position)
        if option is None:
            raise SettingError(f"sasl.jaas.config: must be {shape}")
        quoted = option["quoted"]
        options[option["name"]] = (
            option["plain"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        position = option.end()
    if "username" not in options or "password" not in options:
        raise SettingError("sasl.jaas.config: username and password are both needed")
    return options["username"], options["password"]


def _parse(known: str, name: str, value: str) -> object:
    if known == "ssl.endpoint.identification.algorithm" and not value.strip():
        return ""  # Kafka's way to turn it off
    if known in ("ssl.truststore.type", "ssl.keystore.type") and value.upper() in ("JKS", "PKCS12"):
        raise SettingError(f"{name}={value}: only PEM is read here; "
                           "`openssl pkcs12 -in store.p12 -out store.pem` converts a PKCS12 file")
    return tables.parse(CLIENT, known, value)


def _with_login(settings: ClientSettings) -> ClientSettings:
    """Settings with the name and password for SASL, taken from sasl.jaas.config if it is set."""
    if settings.sasl_jaas_config is not None:
        if settings.sasl_username is not None or settings.sasl_password is not None:
            raise SettingError("give sasl.jaas.config, or sasl.username and sasl.password")
        name, password = parse_jaas(settings.sasl_jaas_config)
        return dataclasses.replace(settings, sasl_username=name, sasl_password=password)
    if settings.sasl_username is None or settings.sasl_password is None:
        raise SettingError(
            f"security.protocol={settings.security_protocol} needs sasl.username and "
            "sasl.password, or sasl.jaas.config")
    return settings
