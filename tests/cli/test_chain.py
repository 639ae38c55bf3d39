"""`quipu chain`: what it asks, whom, for how long, and what it shows."""

import json
import socket
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from quipu.cli.main import main
from quipu.model.chains import MemberState
from quipu.model.errors import Code
from quipu.wire.messages.k10000_describe_chains import DescribedOrder
from quipu.wire.messages.k10001_create_chain import CreateChainRequest
from quipu.wire.messages.k10002_extend_chain import ExtendChainRequest
from tests.cli.fake_nodes import Fake, listening


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Rig:
    """The command line in this process, and the cluster that it talks to."""

    def __init__(self, fake: Fake, address: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.fake = fake
        self.address = address
        self._capsys = capsys

    def chain(self, *words: str, bootstrap: str | None = None) -> Done:
        code = main(["chain", *words, "--bootstrap", bootstrap or self.address])
        return Done(code, *self._capsys.readouterr())


@pytest.fixture
def rig(capsys: pytest.CaptureFixture[str]) -> Iterator[Rig]:
    fake = Fake()
    with listening(fake) as address:
        yield Rig(fake, address, capsys)


def test_a_chain_is_made_listed_and_described(rig: Rig) -> None:
    """V6: a chain is made explicitly, of all its nodes; they are in numeric order."""
    assert rig.chain("list") == (
        0, "", "no chains yet; create one with `quipu chain create CHAIN NODE NODE ...`\n")
    assert rig.chain("create", "a", "a-0", "a-10", "a-2") == (
        0, "", "created chain a of a-0, a-2, a-10\n")
    rig.fake.states["a-10"] = MemberState.SYNCING
    listed = rig.chain("list").out.splitlines()
    assert [line.split() for line in listed] == [
        ["NAME", "SERVING", "NODES", "HEAD", "TAIL", "TOPICS", "PARTITIONS", "EPOCH"],
        ["a", "2", "3", "a-0", "a-2", "1", "0", "3"]]
    described = rig.chain("describe", "a").out.splitlines()
    assert described[0] == "chain a  epoch 3  1 topic  0 partitions"
    assert [line.split() for line in described[1:]] == [
        ["NAME", "ID", "ROLE", "STATE", "UP", "RACK", "ADDRESS"],
        ["a-0", "1", "head", "serving", "yes", "r1", "127.0.0.1:9092"],
        ["a-2", "3", "tail", "serving", "yes", "r1", "127.0.0.1:9092"],
        ["a-10", "11", "-", "syncing", "yes", "r1", "127.0.0.1:9092"]]


def test_the_orders_of_partitions_are_described(rig: Rig) -> None:
    """V2, K9: which nodes hold partitions in which order, and which of them serve there."""
    rig.chain("create", "a", "a-0", "a-2", "a-10")
    rig.fake.chains["a"].orders = [
        DescribedOrder(preferred=[1, 3, 11], nodes=[1, 3, 11], states=[0, 0, 0], epoch=3,
                       partition_count=4),
        DescribedOrder(preferred=[3, 11], nodes=[11, 3], states=[0, 1], epoch=9,
                       partition_count=2)]

    described = rig.chain("describe", "a").out.splitlines()

    assert described[-3].split() == [
        "ORDER", "PARTITIONS", "EPOCH", "SERVING", "SYNCING", "OFFLINE"]
    assert described[-1].split() == ["a-2", "a-10", "2", "9", "a-10", "a-2", "-"]
    assert json.loads(rig.chain("describe", "a", "--json").out)["orders"][1] == {
        "order": ["a-2", "a-10"], "partitions": 2, "epoch": 9, "serving": ["a-10"],
        "syncing": ["a-2"], "offline": []}


def test_a_member_that_lacks_records_of_one_order_is_waited_for(rig: Rig) -> None:
    """V7: a chain is whole when its nodes serve in all orders."""
    rig.chain("create", "a", "a-0", "a-2")
    rig.fake.chains["a"].orders = [
        DescribedOrder(preferred=[3, 1], nodes=[1, 3], states=[0, 1])]

    failed = rig.chain("extend", "a", "a-3", "--wait", "0.1")

    assert failed.code == 1
    assert "a-2 is syncing" in failed.err


def test_json_has_every_member(rig: Rig) -> None:
    """K9: programs read lines of JSON."""
    made = json.loads(rig.chain("create", "a", "--json").out)
    assert [member["name"] for member in made["members"]] == ["a-0", "a-2", "a-3", "a-10"]
    assert [json.loads(line) for line in rig.chain("list", "--json").out.splitlines()] == [made]
    assert json.loads(rig.chain("describe", "--json").out) == made
    assert made["members"][0] == {
        "name": "a-0", "id": 1, "state": "serving", "role": "head", "up": True, "rack": "r1",
        "address": "127.0.0.1:9092"}


def test_a_refusal_is_told_with_its_reason(rig: Rig) -> None:
    """K9: what the cluster says, and the name of the error."""
    assert rig.chain("create", "a", "a-7") == (
        1, "", "quipu: cannot create chain a: no node a-7 [BROKER_ID_NOT_REGISTERED]\n")
    rig.chain("create", "a", "a-0")
    assert "it exists [DUPLICATE_RESOURCE]" in rig.chain("create", "a", "a-0").err
    assert "cannot add a-7 to chain a" in rig.chain("extend", "a", "a-7").err
    assert rig.chain("describe", "aa").err == (
        "quipu: there is no chain aa; did you mean a?\n")


def test_a_chain_is_extended(rig: Rig) -> None:
    """V7: one node more, at the end."""
    rig.chain("create", "a", "a-0")
    assert rig.chain("extend", "a", "a-2") == (
        0, "", "a-2 joined chain a; see `quipu chain describe a`\n")
    assert [member.name for member in rig.fake.chains["a"].members] == ["a-0", "a-2"]


def test_a_job_can_make_or_extend_a_chain_again_and_again(rig: Rig) -> None:
    """V18: --or-extend makes what is not there and adds what is missing."""
    assert rig.chain("create", "a", "a-0", "a-2", "--or-extend").err.startswith("created chain a")
    assert rig.chain("create", "a", "a-2", "a-0", "--or-extend").err == (
        "chain a exists already, of a-0, a-2\n")
    assert rig.chain("create", "a", "a-0", "a-10", "a-2", "a-3", "--or-extend").err == (
        "extended chain a to a-0, a-2, a-3, a-10\n")


def test_waiting_is_for_nodes_that_come_and_for_all_to_serve(rig: Rig) -> None:
    """V6: --wait bridges the start of the nodes."""
    rig.fake.trouble = [Code.BROKER_ID_NOT_REGISTERED, Code.BROKER_NOT_AVAILABLE]
    rig.fake.states["a-2"] = MemberState.SYNCING
    rig.fake.on_describe = rig.fake.states.clear
    assert rig.chain("create", "a", "a-0", "a-2", "--wait", "5").code == 0
    assert sum(isinstance(request, CreateChainRequest) for request in rig.fake.asked) == 3


def test_members_that_do_not_serve_in_time_are_named(rig: Rig) -> None:
    """V7: the chain is there all the same."""
    rig.fake.states["a-2"] = MemberState.SYNCING
    done = rig.chain("create", "a", "a-0", "a-2", "--wait", "0.3")
    assert (done.code, done.err) == (1, (
        "quipu: chain a exists, but some members do not serve yet: a-2 is syncing\n"))
    assert "a" in rig.fake.chains


def test_an_attempt_that_may_have_worked_is_not_a_failure(rig: Rig) -> None:
    """V6: a time-out says nothing; if the chain is there on the second try, it was made."""
    rig.chain("create", "a", "a-0")
    rig.fake.trouble = [Code.REQUEST_TIMED_OUT]
    assert rig.chain("create", "a", "a-0") == (0, "", "created chain a of a-0\n")


def test_any_node_will_do(rig: Rig) -> None:
    """V5: dead addresses are passed over, and nodes that one tells about are asked too."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        dead = f"127.0.0.1:{gone.getsockname()[1]}"
    assert rig.chain("create", "a", "a-0", bootstrap=f"{dead},{rig.address}").code == 0
    confused = Fake()
    confused.trouble = [Code.NOT_CONTROLLER] * 100
    host, _, port = rig.address.rpartition(":")
    confused.others = [(host, int(port))]
    with listening(confused) as address:
        done = rig.chain("extend", "a", "a-2", bootstrap=address)
    assert done.code == 0, done.err
    assert isinstance(rig.fake.asked[-1], ExtendChainRequest)


def test_nobody_and_strangers_are_told(rig: Rig) -> None:
    """K9: one line that says what to do."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        dead = f"127.0.0.1:{gone.getsockname()[1]}"
    nobody = rig.chain("list", bootstrap=dead)
    assert (nobody.code, nobody.out) == (1, "")
    assert f"no broker responds at {dead} (Connection refused)" in nobody.err
    rig.fake.keys = (0, 1, 3)
    assert "another Kafka broker, or an older Quipu" in rig.chain("list").err
