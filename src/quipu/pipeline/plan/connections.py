"""Checks CREATE CONNECTION, and finds the client's settings for a Kafka cluster or a registry.

Options are Kafka's client settings with blanks for dots (SASL MECHANISM, SSL CA LOCATION); a few
have a second name.  All options are checked when the connection is created; whether the cluster
responds is not.
"""

from collections.abc import Iterable, Mapping, Sequence

from quipu.client.settings import ALIASES, CLIENT, client_settings
from quipu.model.errors import SettingError
from quipu.model.nearest import nearest
from quipu.pipeline.formats.specs import Registry
from quipu.pipeline.registry.client import OPTIONS as REGISTRY_SETTINGS
from quipu.pipeline.registry.client import RegistryRefused, check_registry
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.secrets import Secret
from quipu.pipeline.sql.statements import CreateConnection, Name, Option, Value
from quipu.pipeline.sql.text import TextSpan

_BROKERS = ("broker", "brokers", "bootstrap servers", "metadata broker list")
KAFKA_OPTIONS: Mapping[str, str] = {
    **{name.replace(".", " "): name for name in (*CLIENT, *ALIASES)},
    "ssl certificate authority": "ssl.ca.pem",
    "ssl certificate": "ssl.certificate.pem",
    "ssl key": "ssl.key.pem",
}
REGISTRY_OPTIONS: Mapping[str, str] = {
    **{name.replace(".", " "): name for name in REGISTRY_SETTINGS}, "user": "username"}


def check_connection(connection: CreateConnection) -> None:
    """Raise SqlError if an option of a connection is wrong."""
    if connection.is_registry:
        registry_of(connection)
    else:
        kafka_of(connection)


def kafka_of(connection: CreateConnection) -> tuple[str, dict[str, str]]:
    """The bootstrap servers and the client's settings."""
    refuse_unknown(connection.options, (*_BROKERS[:2], *KAFKA_OPTIONS), "CREATE CONNECTION")
    brokers = [option for option in connection.options if option.name in _BROKERS]
    if len(brokers) != 1:
        span = brokers[1].span if brokers else connection.span
        raise SqlError("A connection to Kafka has one BROKER or BROKERS", span,
                       hint="write BROKER 'host:9092', or BROKERS ('a:9092', 'b:9092')")
    settings = settings_of(option for option in connection.options if option not in brokers)
    bootstrap = setting_text(brokers[0].value)
    check_settings(bootstrap, settings, connection.options, connection.span)
    return bootstrap, settings


def registry_of(connection: CreateConnection) -> Registry:
    """The schema registry of a connection."""
    refuse_unknown(connection.options, ("url", *REGISTRY_OPTIONS), "CREATE CONNECTION")
    urls = [option for option in connection.options if option.name == "url"]
    if len(urls) != 1:
        raise SqlError("A connection to a schema registry has one URL", connection.span,
                       hint="write URL 'http://host:8081'")
    rest = [option for option in connection.options if option not in urls]
    return registry_at(setting_text(urls[0].value), registry_settings_of(rest), rest,
                       urls[0].value_span)


def registry_settings_of(options: Sequence[Option]) -> dict[str, str]:
    """The settings of a registry's client, from options."""
    refuse_unknown(options, REGISTRY_OPTIONS, "a schema registry")
    return {REGISTRY_OPTIONS[option.name]: setting_text(option.value) for option in options}


def registry_at(url: str, settings: Mapping[str, str], options: Iterable[Option],
                span: TextSpan) -> Registry:
    """The registry at a URL; SqlError at the option at fault, or at `span` if none is named."""
    registry = Registry(url, settings)
    try:
        check_registry(registry)
    except RegistryRefused as error:
        at_fault = _named_option(str(error), options, REGISTRY_OPTIONS) or span
        raise SqlError(f"There can be no such schema registry: {error}", at_fault,
                       hint="write 'http://host:8081', for example") from None
    return registry


def find_connection(name: Name, connections: Mapping[str, CreateConnection], *,
                    registry: bool) -> CreateConnection:
    """The connection of this name; raises SqlError if there is none, or it is of another kind."""
    found = connections.get(name.text)
    wanted = "CONFLUENT SCHEMA REGISTRY" if registry else "KAFKA"
    if found is None:
        near = nearest(name.text, connections)
        hint = f'did you mean "{near}"?' if near else f"CREATE CONNECTION {name.text} TO {wanted} …"
        raise SqlError(f'There is no connection "{name.text}"', name.span, hint=hint)
    if found.is_registry != registry:
        raise SqlError(f"{name.text} is not a {wanted} CONNECTION", name.span,
                       hint=f"create one with CREATE CONNECTION … TO {wanted} (…)")
    return found


def settings_of(options: Iterable[Option]) -> dict[str, str]:
    """Options as Kafka's client settings."""
    return {KAFKA_OPTIONS[option.name]: setting_text(option.value) for option in options}


def check_settings(bootstrap: str, settings: Mapping[str, str], options: Iterable[Option],
                   span: TextSpan) -> None:
    """Raise SqlError at the option that Kafka's client refuses, or at `span` if it names none."""
    try:
        client_settings({**settings, "bootstrap.servers": bootstrap})
    except SettingError as error:
        at_fault = _named_option(str(error), options, KAFKA_OPTIONS) or span
        raise SqlError(f"Kafka's client refuses it: {error}", at_fault,
                       hint="correct this setting of the client") from None


def _named_option(
    message: str, options: Iterable[Option], names: Mapping[str, str],
) -> TextSpan | None:
    """The span of the first option that an error names; BROKERS is bootstrap.servers."""
    return next((option.span.to(option.value_span) for option in options
                 if names.get(option.name, "bootstrap.servers") in message), None)


def refuse_unknown(options: Iterable[Option], known: Iterable[str], what: str) -> None:
    """Raise if an option is unknown or given twice."""
    known = list(known)
    seen: set[str] = set()
    for option in options:
        if option.name not in known:
            near = nearest(option.name, known)
            hint = f"did you mean {near.upper()}?" if near else "leave it out"
            raise SqlError(f"unexpected parameters for {what}: {option.name}", option.span,
                           hint=hint)
        if option.name in seen:
            raise SqlError(f"{option.name.upper()} is given twice", option.span,
                           hint="leave one of them out")
        seen.add(option.name)


def setting_text(value: Value) -> str:
    """An option's value as the text of a Kafka setting."""
    match value:
        case Secret():
            return value.value
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(map(setting_text, value))
        case _:
            return str(value)
