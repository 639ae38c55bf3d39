"""Our reader of queries against Spark's own parser: the same relations in the same queries."""

from random import Random

from pyspark.sql import SparkSession

from quipu.pipeline.spark.queries.jvm_plans import class_of, items_of, nodes_of
from quipu.pipeline.sql.relations import relations
from tests.pipeline.sql.queries import CASES, made_query


def relations_for_spark(spark: SparkSession, query: str) -> set[str]:
    """The names of one part that are left in Spark's plan once it has taken the WITHs apart."""
    parsed = spark._jsparkSession.sessionState().sqlParser().parsePlan(query)
    jvm = spark._jvm
    assert jvm is not None
    plan = jvm.org.apache.spark.sql.catalyst.analysis.CTESubstitution.apply(parsed)
    found = set()
    for node in nodes_of(plan):
        if class_of(node) == "RelationTimeTravel":
            node = node.relation()  # noqa: PLW2901 the relation is no child of it
        if class_of(node) == "UnresolvedRelation":
            parts = items_of(node.multipartIdentifier())
            found |= {str(parts[0])} if len(parts) == 1 else set()
    return found


def test_spark_finds_the_same_relations(spark: SparkSession) -> None:
    """pipeline.N1, and I13: every query of the corpus, as Spark understands it."""
    different = {case.why: (relations(case.query), found) for case in CASES
                 if (found := relations_for_spark(spark, case.query)) != set(relations(case.query))}
    assert different == {}


def test_spark_finds_the_same_relations_in_queries_that_are_made_up(spark: SparkSession) -> None:
    """pipeline.N1, and I13: definitions that hide each other and relations, at any depth."""
    for seed in range(150):
        query = made_query(Random(seed))
        assert relations_for_spark(spark, query) == set(relations(query)), query
