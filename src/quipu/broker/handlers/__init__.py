"""Request handlers: one module per API key, named kNN_name; these are the APIs that are served.

A module begins with its API's name, key, versions and behaviour, and has one function:

    def handle(broker: Broker, request: XRequest, context: Context) -> XResponse

which may be a coroutine.  Produce and Fetch are different: their modules work on bytes.  Besides:

    ON_CONTROLLER = True       the handler runs on the controller; other nodes forward the request
    async def handle_here(broker, request, forward) -> XResponse | None    with ON_CONTROLLER: what
                                                the node that the client asked does itself
    def refuse(request, error) -> XResponse     a response with the error in every part, for APIs
                                                without a field for an error of the whole request

Invariants
    broker.handlers.H1  ApiVersions names every module here and nothing else
    broker.handlers.H2  a handler serves every version from the first to the last of its request's
                        definition

Keys from OWN_KEY_FIRST on are Quipu's own; Kafka clients ignore them.

Modules
    k00_produce.py                          Produce, v3-13
    k01_fetch.py                            Fetch, v4-18
    k02_list_offsets.py                     ListOffsets, v1-11
    k03_metadata.py                         Metadata, v0-13
    k08_offset_commit.py                    OffsetCommit, v2-10
    k09_offset_fetch.py                     OffsetFetch, v1-10
    k10_find_coordinator.py                 FindCoordinator, v0-6
    k11_join_group.py                       JoinGroup, v0-9
    k12_heartbeat.py                        Heartbeat, v0-4
    k13_leave_group.py                      LeaveGroup, v0-5
    k14_sync_group.py                       SyncGroup, v0-5
    k15_describe_groups.py                  DescribeGroups, v0-6
    k16_list_groups.py                      ListGroups, v0-5
    k17_sasl_handshake.py                   SaslHandshake, v0-1
    k18_api_versions.py                     ApiVersions, v0-4
    k19_create_topics.py                    CreateTopics, v2-7
    k20_delete_topics.py                    DeleteTopics, v1-6
    k21_delete_records.py                   DeleteRecords, v0-2
    k22_init_producer_id.py                 InitProducerId, v0-5
    k23_offset_for_leader_epoch.py          OffsetForLeaderEpoch, v2-4
    k29_describe_acls.py                    DescribeAcls, v1-3
    k30_create_acls.py                      CreateAcls, v1-3
    k31_delete_acls.py                      DeleteAcls, v1-3
    k32_describe_configs.py                 DescribeConfigs, v1-4
    k33_alter_configs.py                    AlterConfigs, v0-2
    k34_alter_replica_log_dirs.py           AlterReplicaLogDirs, v1-2
    k35_describe_log_dirs.py                DescribeLogDirs, v1-4
    k36_sasl_authenticate.py                SaslAuthenticate, v0-2
    k37_create_partitions.py                CreatePartitions, v0-3
    k38_create_delegation_token.py          CreateDelegationToken, v1-3
    k39_renew_delegation_token.py           RenewDelegationToken, v1-2
    k40_expire_delegation_token.py          ExpireDelegationToken, v1-2
    k41_describe_delegation_token.py        DescribeDelegationToken, v1-3
    k42_delete_groups.py                    DeleteGroups, v0-2
    k43_elect_leaders.py                    ElectLeaders, v0-2
    k44_incremental_alter_configs.py        IncrementalAlterConfigs, v0-1
    k45_alter_partition_reassignments.py    AlterPartitionReassignments, v0-1
    k46_list_partition_reassignments.py     ListPartitionReassignments, v0
    k47_offset_delete.py                    OffsetDelete, v0
    k48_describe_client_quotas.py           DescribeClientQuotas, v0-1
    k49_alter_client_quotas.py              AlterClientQuotas, v0-1
    k50_describe_user_scram_credentials.py  DescribeUserScramCredentials, v0
    k51_alter_user_scram_credentials.py     AlterUserScramCredentials, v0
    k55_describe_quorum.py                  DescribeQuorum, v0-2
    k57_update_features.py                  UpdateFeatures, v0-2
    k60_describe_cluster.py                 DescribeCluster, v0-2
    k61_describe_producers.py               DescribeProducers, v0
    k64_unregister_broker.py                UnregisterBroker, v0
    k65_describe_transactions.py            DescribeTransactions, v0
    k66_list_transactions.py                ListTransactions, v0-2
    k74_list_config_resources.py            ListConfigResources, v0-1
    k75_describe_topic_partitions.py        DescribeTopicPartitions, v0
    k77_share_group_describe.py             ShareGroupDescribe, v1
    k80_add_raft_voter.py                   AddRaftVoter, v0-1
    k81_remove_raft_voter.py                RemoveRaftVoter, v0
    k89_streams_group_describe.py           StreamsGroupDescribe, v0
    k90_describe_share_group_offsets.py     DescribeShareGroupOffsets, v0-1
    k91_alter_share_group_offsets.py        AlterShareGroupOffsets, v0
    k92_delete_share_group_offsets.py       DeleteShareGroupOffsets, v0
    k10000_describe_chains.py               DescribeChains, v0
    k10001_create_chain.py                  CreateChain, v0
    k10002_extend_chain.py                  ExtendChain, v0
    k10003_describe_remote_segments.py      DescribeRemoteSegments, v0
    k10004_describe_diskless_runs.py        DescribeDisklessRuns, v0
    k10005_describe_racks.py                DescribeRacks, v0
    k10006_migrate_topic.py                 MigrateTopic, v0
    k10007_remove_chain.py                  RemoveChain, v0

Start at `k00_produce.py` and `k01_fetch.py`; each of the others can be read alone.
Not here: what several handlers share (serving/), the layout of messages (wire/messages).
To add an API: its messages (wire/messages/kNN_name), its handler here with a line in this map, its
tests; `make docs`.
"""

from collections.abc import Awaitable, Callable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final

from quipu.broker.error_codes import code_of
from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code, QuipuError
from quipu.wire.fields import parse_versions
from quipu.wire.messages import REQUESTS, RESPONSES
from quipu.wire.schema import Request, Response

Handler = Callable[[Broker, Any, Context], Response | Awaitable[Response]]

Forward = Callable[[Request], Awaitable[Response]]  # asks the controller

HereHandler = Callable[[Broker, Any, Forward], Awaitable[Response | None]]

Refusal = Callable[[Any, QuipuError], Response]

PRODUCE_KEY: Final = 0
PRODUCE_VERSION_MIN: Final = 0  # advertised, and refused below 3: librdkafka looks for it

MODULES: Final[dict[int, str]] = {
    int(module.name[1:].partition("_")[0]): f"{__name__}.{module.name}"
    for module in iter_modules(__path__)
}


def _versions(api_key: int) -> tuple[int, int]:
    versions = REQUESTS[api_key].VERSIONS
    first = PRODUCE_VERSION_MIN if api_key == PRODUCE_KEY else versions[0]
    return first, versions[-1]


# The lowest and the highest served version of each API, both inclusive.
# broker.handlers.H1, broker.handlers.H2
SUPPORTED: Final[dict[int, tuple[int, int]]] = {key: _versions(key) for key in sorted(MODULES)}


@cache
def is_on_controller(api_key: int) -> bool:
    """Whether the handler runs on the controller only."""
    return bool(getattr(import_module(MODULES[api_key]), "ON_CONTROLLER", False))


@cache
def here_handler(api_key: int) -> HereHandler | None:
    """The `handle_here` function of the API's module, if it has one."""
    handle_here: HereHandler | None = getattr(
        import_module(MODULES[api_key]), "handle_here", None)
    return handle_here


@cache
def refusal(api_key: int) -> Refusal | None:
    """The `refuse` function of the API's module, if it has one."""
    refuse: Refusal | None = getattr(import_module(MODULES[api_key]), "refuse", None)
    return refuse


def refused(request: Request, version: int, error: QuipuError) -> Response | None:
    """The response to a `request` that failed as a whole; None if it has no field for an error."""
    response = RESPONSES[request.KEY]()
    field = type(response).FIELDS.get("error_code")
    if code_of(error) == Code.NONE:
        return None
    refuse = refusal(request.KEY)
    parts = None if refuse is None else refuse(request, error)
    if field is None or version not in parse_versions(field.versions):
        # A response without parts would mean success.
        return parts if parts is not None and not _is_empty(parts) else None
    if getattr(parts, "error_code", Code.NONE) != Code.NONE:
        return parts  # it has the error of the whole request as well
    response.error_code = code_of(error)  # type: ignore[attr-defined]  # it has the field
    if "error_message" in type(response).FIELDS:
        response.error_message = str(error)  # type: ignore[attr-defined]  # as above
    return response


def _is_empty(response: Response) -> bool:
    return not any(getattr(response, name) for name, field in type(response).FIELDS.items()
                   if field.is_array)


def import_all() -> None:
    """Import every handler at the start: later there may be no file descriptor for an import."""
    for name in MODULES.values():
        import_module(name)


@cache
def load(api_key: int) -> Handler:
    """The handler of an API in SUPPORTED; its module is imported on first use at the latest."""
    handle: Handler = import_module(MODULES[api_key]).handle
    return handle
