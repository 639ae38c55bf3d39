"""`quipu quorum` on a node that is the only voter; with three: tests/startup/test_upgrade.py."""

import json
import time
from pathlib import Path

from tests.harness.command import Result, run_quipu
from tests.harness.node import RunningNode

AT_ONCE_SECONDS = 10.0  # to start the command on a busy machine; it would wait for 30 s and more


def test_the_quorum_is_listed_and_keeps_its_last_voter(tmp_path: Path) -> None:
    """K6: who votes, in a table and as JSON; what cannot be done says why, with exit code 1."""
    with RunningNode(tmp_path / "data") as node:
        def quorum(*words: str) -> Result:
            return run_quipu("quorum", *words, "--bootstrap", node.bootstrap)

        table = [line.split() for line in quorum("list").out.splitlines()]
        assert table[0] == ["ID", "ROLE", "LOG", "END", "BEHIND", "HEARD", "MS", "AGO"]
        assert table[1][:2] == ["1", "leader"]
        listed = json.loads(quorum("list", "--json").out)
        assert (listed["id"], listed["role"], listed["behind"]) == (1, "leader", 0)

        twice = quorum("add", "1")
        assert (twice.code, "a voter already" in twice.err) == (1, True)
        begun = time.monotonic()
        nowhere = quorum("add", "9")
        assert (nowhere.code, "node 9 is not known: start it" in nowhere.err) == (1, True)
        assert time.monotonic() - begun < AT_ONCE_SECONDS
        last = quorum("remove", "1")
        assert (last.code, "the last voter" in last.err) == (1, True)
        unknown = quorum("remove", "7")
        assert (unknown.code, "node 7 is no voter" in unknown.err) == (1, True)
    nobody = quorum("list")
    assert (nobody.code, "no broker responds" in nobody.err) == (1, True)
