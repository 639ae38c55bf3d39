"""DescribeDisklessRuns — API key 10004, version 0.  Quipu's own.

Behaviour
    * any node responds, from the control plane and not from what it remembers
    * responds with the runs from the one that holds `start_offset` on, below `end_offset`, at most
      `limit` of a partition, never more than FIND_RUNS_MAX, and of all partitions about
      RESPONSE_RUNS_MAX
    * responds per partition: an error of one partition does not fail the others; a partition that
      is not diskless has no runs, and `is_diskless` is false
    * a control plane that does not respond within SECONDS_MAX is REQUEST_TIMED_OUT
    * the URL of the object store is without paths of files of the node; credentials are in no URL
"""

import asyncio
from typing import Final

from quipu.broker.diskless.opening import storage_url
from quipu.broker.error_codes import code_of
from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.routing import find_topic, why_absent
from quipu.diskless.control_plane.interface import FIND_RUNS_MAX, FindRequest, FoundRuns
from quipu.diskless.values import LogKey
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import ZERO_UUID, Offset
from quipu.model.partition_log import PartitionLog
from quipu.runtime.objects.urls import MEMORY, parse_store_url, public_url
from quipu.wire.messages.k10004_describe_diskless_runs import (
    DescribedDisklessPartition,
    DescribedDisklessTopic,
    DescribeDisklessRunsRequest,
    DescribeDisklessRunsResponse,
    DescribedRun,
    DisklessRunsPartition,
)

RESPONSE_RUNS_MAX: Final = 20_000  # afterwards, each partition gets one
BYTES_MAX: Final = 1 << 40
SECONDS_MAX: Final = 15.0

_Answer = FoundRuns | QuipuError | None  # None: the partition is not diskless


async def handle(
    broker: Broker, request: DescribeDisklessRunsRequest, context: Context
) -> DescribeDisklessRunsResponse:
    answers = await _answers(broker, request, context)
    response = DescribeDisklessRunsResponse(
        storage_url=store_url(broker), topics=context.array(DescribedDisklessTopic))
    for topic in request.topics:
        partitions = context.array(DescribedDisklessPartition)
        for each in topic.partitions:
            await context.pause()
            partitions.append(_described(
                each, answers[topic.name, each.partition_index], context))
        found = find_topic(broker, topic.name)
        response.topics.append(DescribedDisklessTopic(
            name=topic.name, partitions=partitions,
            topic_id=ZERO_UUID if found is None else found.topic_id))
    return response


def refuse(
    request: DescribeDisklessRunsRequest, error: QuipuError
) -> DescribeDisklessRunsResponse:
    """Respond with the error for each partition."""
    return DescribeDisklessRunsResponse(topics=[
        DescribedDisklessTopic(name=topic.name, partitions=[
            DescribedDisklessPartition(partition_index=each.partition_index,
                                       error_code=code_of(error), error_message=str(error))
            for each in topic.partitions]) for topic in request.topics])


def store_url(broker: Broker) -> str | None:
    """The URL of the objects for other processes; None if they cannot open the store."""
    if broker.diskless is None:
        return None
    url = storage_url(broker.settings)
    return None if parse_store_url(url).scheme == MEMORY else public_url(url)


def _found(broker: Broker, topic: str, wanted: DisklessRunsPartition) -> PartitionLog:
    log = broker.partitions.find(topic, wanted.partition_index)
    if log is None:
        raise RequestError(f"there is no partition {topic[:100]}-{wanted.partition_index}",
                           code=why_absent(broker, topic, wanted.partition_index))
    if not 0 <= wanted.start_offset <= wanted.end_offset:
        raise RequestError(f"offsets {wanted.start_offset} to {wanted.end_offset} are no range",
                           code=Code.INVALID_REQUEST)
    return log


async def _answers(
    broker: Broker, request: DescribeDisklessRunsRequest, context: Context
) -> dict[tuple[str, int], _Answer]:
    """What the control plane says of each partition, all asked for at once."""
    found: dict[tuple[str, int], _Answer] = {}
    wanted: dict[tuple[str, int], FindRequest] = {}
    max_bytes = min(max(1, request.max_bytes), BYTES_MAX)
    for topic in request.topics:
        for each in topic.partitions:
            await context.pause()
            key = topic.name, each.partition_index
            try:
                log = _found(broker, topic.name, each)
            except QuipuError as error:
                found[key] = error
                continue
            found[key] = None
            if log.is_diskless:
                wanted[key] = FindRequest(LogKey(log.topic_id, each.partition_index),
                                          Offset(each.start_offset), max_bytes)
    if wanted:
        assert broker.diskless is not None
        runs_max = min(
            max(1, request.limit), FIND_RUNS_MAX, max(1, RESPONSE_RUNS_MAX // len(wanted)))
        try:
            async with asyncio.timeout(SECONDS_MAX):
                runs = await broker.diskless.plane.find(
                    list(wanted.values()), runs_max=runs_max)
        except TimeoutError:
            found.update(dict.fromkeys(wanted, RequestError(
                "the control plane (diskless.control.plane.url) does not respond",
                code=Code.REQUEST_TIMED_OUT)))
        except QuipuError as error:
            found.update(dict.fromkeys(wanted, error))
        else:
            found.update(zip(wanted, runs, strict=True))
    return found


def _described(
    wanted: DisklessRunsPartition, answer: _Answer, context: Context
) -> DescribedDisklessPartition:
    result = DescribedDisklessPartition(
        partition_index=wanted.partition_index, runs=context.array(DescribedRun))
    if answer is None:
        return result
    result.is_diskless = True
    if isinstance(answer, QuipuError):
        result.error_code, result.error_message = code_of(answer), str(answer)
    elif answer.bounds is None:
        result.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
        result.error_message = "the control plane does not know the partition yet"
    else:
        result.log_start_offset = answer.bounds.log_start_offset
        result.diskless_start_offset = answer.bounds.diskless_start_offset
        result.high_watermark = answer.bounds.high_watermark
        for run in answer.runs:
            if run.base_offset >= wanted.end_offset:
                break
            result.runs.append(DescribedRun(
                key=run.key, position=run.position, size=run.size, batch_count=run.batch_count,
                base_offset=run.base_offset, end_offset=run.end_offset))
    return result
