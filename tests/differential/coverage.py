"""What a run has covered, and what it found, as text."""

from collections.abc import Iterator

from tests.differential.both import QUIPU, for_side
from tests.differential.explained import EXPLANATIONS, api_name
from tests.differential.run import Run, missing_coverage

TEXT_MAX = 1500  # characters of a request or response that are shown


def coverage_lines(run: Run) -> Iterator[str]:
    """One line for each API: its versions and requests, and the codes of both sides."""
    for key, versions in run.both.items():
        count = sum(run.coverage[key, version] for version in versions)
        least = min(run.coverage[key, version] for version in versions)
        kafka, quipu = (sorted(codes) for codes in run.codes[key])
        shown = "" if kafka == quipu else f"; Quipu: {', '.join(quipu)}"
        yield (f"{key:5} {api_name(key):32} v{versions[0]}-{versions[-1]} {count:7} requests, "
               f"at least {least} of each version; {', '.join(kafka)}{shown}")


def found_lines(run: Run) -> Iterator[str]:
    """The differences that no row explains, with the request of the first of each kind."""
    for kind, found in sorted(run.unexplained.items(), key=lambda each: each[1].number):
        versions = sorted(run.versions_of[kind])
        yield (f"UNEXPLAINED {api_name(kind.key)} v{versions[0]}-{versions[-1]}, "
               f"{run.counts[kind]} times: {kind.difference.path or 'the outcome'}: "
               f"Kafka {kind.difference.kafka}, Quipu {kind.difference.quipu}")
        request = for_side(found.step.request, QUIPU)
        yield f"    request {found.number} of seed {run.seed}, v{found.step.version}: " + str(
            request)[:TEXT_MAX]
        for topic in getattr(request, "topic_data", ()):
            for part in topic.partition_data:
                yield f"    batch for {topic.name}-{part.index}: {bytes(part.records or b'').hex()}"
        yield f"    Kafka: {str(found.kafka)[:TEXT_MAX]}"
        yield f"    Quipu: {str(found.quipu)[:TEXT_MAX]}"


def summary_lines(run: Run) -> Iterator[str]:
    """How much was compared, and how often each row of the table was needed."""
    pairs = sum(len(versions) for versions in run.both.values())
    yield (f"{run.requests} requests of seed {run.seed}: {len(run.both)} APIs, {pairs} versions; "
           f"{len(run.unexplained)} kinds of differences are not explained, "
           f"{sum(run.explained.values())} differences are, by {len(run.explained)} of "
           f"{len(EXPLANATIONS)} rows")
    for key, version in missing_coverage(run):
        yield f"NOT COVERED {api_name(key)} v{version}"
