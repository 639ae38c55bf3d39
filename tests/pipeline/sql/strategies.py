"""Any statement at all, for properties."""

from hypothesis import strategies as st

from quipu.pipeline.source import EnvelopeKind, MetadataKind
from quipu.pipeline.sql import statements as s
from quipu.pipeline.sql.secrets import Secret, is_secret, option_name

characters = st.characters(codec="utf-8", exclude_characters="\0")
texts = st.text(characters, max_size=8)
names = st.builds(s.Name, st.one_of(
    st.sampled_from(["a", "key", "Off", "select", "primary", "source", "b c", 'q"q', "värde"]),
    st.text(characters, min_size=1, max_size=6)))
name_lists = st.lists(names, min_size=1, max_size=3).map(tuple)
values = st.recursive(
    st.one_of(st.booleans(), texts, st.integers(-10**18, 10**18),
              st.floats(allow_nan=False, allow_infinity=False)),
    lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=1)
option_names = st.one_of(
    st.sampled_from(["start offset", "errors", "sasl password", "ssl key location", "a"]),
    texts.map(option_name))


@st.composite
def options(draw: st.DrawFn) -> s.Option:
    name, value = draw(option_names), draw(values)
    return s.Option(name, Secret(str(value)) if is_secret(name) else value)


option_lists = st.lists(options(), max_size=3).map(tuple)
some_options = st.lists(options(), min_size=1, max_size=3).map(tuple)
simple_types = st.builds(s.TypeName, st.sampled_from(
    ["text", "double precision", "timestamp with time zone", "nonsense"]))
types = st.recursive(
    st.one_of(simple_types, st.just(s.TypeName("numeric", (10, 2)))),
    lambda inner: st.one_of(
        st.builds(lambda part: s.TypeName("list", parts=(("", part),)), inner),
        st.builds(lambda a, b: s.TypeName("map", parts=(("", a), ("", b))), inner, inner),
        st.builds(lambda parts: s.TypeName("record", parts=tuple(parts)), st.lists(
            st.tuples(names.map(lambda name: name.text), inner), min_size=1, max_size=2))),
    max_leaves=4)

strategies = st.one_of(
    st.none(), st.just(s.Strategy()), st.builds(s.Strategy, id=st.integers(0, 2**31 - 1)),
    st.builds(s.Strategy, schema=texts))
registries = st.one_of(
    st.builds(s.RegistryReference, url=texts, options=option_lists, key=strategies,
              value=strategies),
    st.builds(s.RegistryReference, connection=names, options=option_lists, key=strategies,
              value=strategies))
formats = st.one_of(
    st.just(s.TextClause()), st.just(s.BytesClause()), st.just(s.JsonClause()),
    st.builds(s.CsvClause, st.one_of(st.integers(1, 100), name_lists),
              st.text(characters, min_size=1, max_size=1)),
    st.builds(s.RegexClause, texts),
    st.builds(s.AvroClause, registry=registries),
    st.builds(s.AvroClause, schema=texts, options=option_lists),
    st.builds(s.AvroClause, file=texts),
    st.builds(s.ProtobufClause, registry=registries),
    st.builds(s.ProtobufClause, message=texts, schema=texts),
    st.builds(s.ProtobufClause, message=texts, file=texts))

places = st.one_of(*(
    st.builds(s.KafkaClause, **where, **what)
    for where in ({"broker": texts}, {"connection": names})
    for what in ({"topics": st.lists(texts, min_size=1, max_size=2).map(tuple)},
                 {"pattern": texts})))
includes = st.one_of(
    st.builds(s.Include, st.sampled_from([None, *(kind for kind in MetadataKind
                                                  if kind is not MetadataKind.HEADER)]),
              st.none() | names),
    st.builds(s.Include, st.just(MetadataKind.HEADER), names, texts, st.none() | types))
plain_envelopes = st.builds(s.EnvelopeClause, st.sampled_from(
    [EnvelopeKind.NONE, EnvelopeKind.DEBEZIUM, EnvelopeKind.MATERIALIZE]))
upserts = st.builds(
    lambda kind, order, inline, name: s.EnvelopeClause(
        kind, order, inline, name if inline else None),
    st.sampled_from([EnvelopeKind.UPSERT, EnvelopeKind.DEBEZIUM_UPSERT]),
    st.one_of(st.just(()), name_lists), st.booleans(), st.none() | names)
columns = st.one_of(
    st.lists(st.builds(s.ColumnItem, names), max_size=3),
    st.lists(st.builds(s.ColumnItem, names, types, st.booleans()), max_size=3)).map(tuple)


@st.composite
def sources(draw: st.DrawFn) -> s.CreateSource:
    key, value = draw(st.none() | formats), draw(formats)
    return s.CreateSource(
        draw(names), draw(places), draw(columns), draw(st.one_of(st.just(()), name_lists)),
        key, value, key is None, draw(st.lists(includes, max_size=3).map(tuple)),
        draw(st.one_of(st.none(), plain_envelopes, upserts)), draw(option_lists),
        draw(st.booleans()), draw(st.booleans()))


one_topic = st.builds(s.KafkaClause, broker=texts, topics=texts.map(lambda topic: (topic,)))
sinks = st.one_of(
    st.builds(s.CreateSink, names, names, st.sampled_from([s.SinkKind.PARQUET, s.SinkKind.DELTA]),
              path=texts, options=option_lists, if_not_exists=st.booleans()),
    st.builds(s.CreateSink, names, names, st.just(s.SinkKind.KAFKA), kafka=one_topic,
              key=st.one_of(st.just(()), name_lists), options=option_lists),
    st.builds(s.CreateSink, names, names, st.sampled_from(
        [s.SinkKind.CONSOLE, s.SinkKind.MEMORY]), options=option_lists))
kinds = st.sampled_from(s.ObjectKind)
queries = st.sampled_from(["SELECT 1", "VALUES ('it\\'s;')", "WITH a AS (SELECT 1)\nTABLE a"])
plain_statements = st.one_of(
    sources(), sinks,
    st.builds(s.CreateConnection, names, st.booleans(), some_options, st.booleans()),
    st.builds(lambda name, query, materialized, how: s.CreateView(
        name, query, materialized, how == 1, how == 2),
        names, queries, st.booleans(), st.integers(0, 2)),
    st.builds(s.Drop, kinds, names, st.just(False), st.booleans(), st.booleans()),
    st.builds(s.Show, st.sampled_from(s.ShowKind)), st.builds(s.ShowColumns, names),
    st.builds(s.ShowCreate, kinds, names), st.builds(s.Query, queries),
    st.builds(s.Subscribe, names, option_lists))
statements = st.one_of(plain_statements, st.builds(s.Explain, st.one_of(names, plain_statements)))
