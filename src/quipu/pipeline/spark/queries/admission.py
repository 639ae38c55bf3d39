"""Admission of queries: they may read sources and views and compute, and nothing outside of them.

Spark's SQL can do more: `java_method` calls any code, csv.`/etc/passwd` is a table, a query may end
in INSERT, its rows may go through a script, and ${env:HOME} is read from the process.  All of that
is refused unless `quipu.sql.outside.enabled` is set, because a user who may send statements need
not have access to the machine.

Spark's own plans are checked, not the text of a query, so that case, comments, aliases and nested
views make no difference:

    before the query is analyzed    it is parsed, and must be no command: Spark carries out commands
                                    when it analyzes them
    while it is analyzed            files are no tables, ${…} is not substituted, and functions that
                                    call code or read files are not known
    afterwards                      its leaves must be relations of the pipeline, or rows that it
                                    makes itself, and no expression may be one of `_CALLS`, or name
                                    a file
"""

from collections.abc import Iterator
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from quipu.pipeline.spark.queries.jvm_plans import class_of, items_of, nodes_of
from quipu.pipeline.sql.errors import SqlError

SETTING: Final = "quipu.sql.outside.enabled"
_HINT: Final = (f"leave it out; {SETTING}=true allows it, for users who may "
                "access the machine")
_OFF: Final = {"spark.sql.runSQLOnFiles": "false", "spark.sql.variable.substitute": "false"}

_PLANS: Final = "org.apache.spark.sql.catalyst.plans.logical."
_COMMANDS: Final = (f"{_PLANS}Command", f"{_PLANS}ParsedStatement")
_WRITERS: Final = frozenset({"InsertIntoDir", "CompoundBody", "SingleStatement"})
_LEAVES: Final = frozenset({
    "LocalRelation", "OneRowRelation", "Range", "CTERelationRef", "UnionLoopRef"})
_SCRIPTS: Final = frozenset({"ScriptTransformation", "ScriptInputOutputSchema"})
_REMOVED: Final = (
    "java_method", "reflect", "try_reflect",
    # Those of Avro and Protobuf read a schema from a URL.  They need a jar that Spark does not
    # include, so few installations have them.
    "from_avro", "schema_of_avro", "from_protobuf", "to_protobuf",
    "schema_of_xml",  # computed while a query is analyzed, with the same option as from_xml
)
_XSD_OPTION: Final = "rowvalidationxsdpath"  # of from_xml: a file to read
_CALLS: Final = {
    "CallMethodViaReflection": "java_method and reflect", "TryReflect": "try_reflect",
    "InputFileName": "input_file_name", "InputFileBlockStart": "input_file_block_start",
    "InputFileBlockLength": "input_file_block_length",
    "HiveSimpleUDF": "a function of Hive", "HiveGenericUDF": "a function of Hive",
    "HiveGenericUDTF": "a function of Hive", "HiveUDAFFunction": "a function of Hive",
}


def close_off(spark: SparkSession) -> None:
    """Switch off files as tables and the substitution of ${…} in the pipeline's session.

    Functions that reach outside when they are analyzed are removed from it: java_method loads the
    class that it names, and others read a file.
    """
    for name, value in _OFF.items():
        spark.conf.set(name, value)
    jvm: Any = spark._jvm  # noqa: SLF001 the only way to Spark's functions
    session: Any = spark._jsparkSession  # noqa: SLF001
    schema, catalog = jvm.scala.Option.apply("builtin"), jvm.scala.Option.apply("system")
    for name in _REMOVED:
        session.sessionState().functionRegistry().dropFunction(
            jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name, schema, catalog))


def refuse_commands(spark: SparkSession, query: str) -> None:
    """Raise SqlError if a text is a command; it is only parsed, not analyzed."""
    session: Any = spark._jsparkSession  # noqa: SLF001 the only way to Spark's parser
    plan = session.sessionState().sqlParser().parsePlan(query)
    load = session.getClass().getClassLoader().loadClass
    commands = [load(name) for name in _COMMANDS]
    for node in _parsed(plan):
        if class_of(node) in _WRITERS or any(
                each.isInstance(node) for each in commands):
            raise SqlError("This is a command, not a query: it would change something",
                           hint="write SELECT, WITH … SELECT or VALUES; CREATE SINK writes rows")


def refuse_outside(frame: DataFrame, is_ours: Any) -> None:  # noqa: ANN401 a node of the JVM
    """Raise SqlError if a query over blank relations reads anything but them.

    `is_ours` returns whether a leaf of the plan is one of them.
    """
    plan: Any = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 the only way to Spark's plans
    for node in nodes_of(plan):
        name = str(node.nodeName())
        if node.children().isEmpty() and name not in _LEAVES and not is_ours(node):
            raise SqlError(f"A query reads sources and views of this pipeline, not {name}",
                           hint=_HINT)
        if name in _SCRIPTS:
            raise SqlError("Rows cannot go through a script", hint=_HINT)
        for expression in _all(node.expressions()):
            kind = class_of(expression)
            found = _CALLS.get(kind)
            if kind == "XmlToStructs" and _XSD_OPTION in str(expression.options()).lower():
                found = "rowValidationXSDPath"
            if found is not None:
                raise SqlError(f"{found} is not allowed: it reaches outside of the query",
                               hint=_HINT)


def explain_missing(error: AnalysisException) -> None:
    """Raise SqlError if Spark did not find something because it is outside of the pipeline."""
    parameters = error.getMessageParameters() or {}
    routine = parameters.get("routineName", "").replace("`", "").rpartition(".")[2].lower()
    if error.getCondition() == "UNRESOLVED_ROUTINE" and routine in _REMOVED:
        raise SqlError(f"{routine} is not allowed: it reaches outside of the query",
                       hint=_HINT) from None
    name = parameters.get("relationName", "")
    if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND" and "`.`" in name:
        raise SqlError(f"{name} is neither a source nor a view: queries read no files, and no "
                       "tables of elsewhere", hint=_HINT) from None


def _parsed(plan: Any) -> Iterator[Any]:  # noqa: ANN401
    """The nodes of a plan that was only parsed, also of the queries in WITH."""
    yield plan
    for inner in (*items_of(plan.children()), *items_of(plan.innerChildren())):
        if hasattr(inner, "innerChildren"):
            yield from _parsed(inner)


def _all(expressions: Any) -> Iterator[Any]:  # noqa: ANN401
    for each in items_of(expressions):
        yield each
        yield from _all(each.children())
