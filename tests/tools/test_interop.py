"""What `make interop` says about software that it cannot get, and when it fails."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tools import interop
from tools.interop import (
    SOFTWARE,
    Installed,
    Results,
    Software,
    State,
    exit_code,
    install,
    java_problem,
    judge,
    read_results,
    summary,
    unfounded,
)

REPORT = """<testsuites><testsuite>
<testcase classname="tests.interop.test_objects" name="test_a[versitygw]"/>
<testcase classname="tests.interop.test_objects" name="test_a[azurite]">
  <skipped message="azurite is MISSING: no npm"/></testcase>
<testcase classname="tests.interop.test_node" name="test_b[azurite]">
  <skipped message="azurite is MISSING: no npm"/></testcase>
<testcase classname="tests.interop.test_node" name="test_c"><skipped/></testcase>
</testsuite></testsuites>"""
BROKEN = REPORT.replace('name="test_a[versitygw]"/>',
                        'name="test_a[versitygw]"><failure message="x"/></testcase>')
FINE = Results(3, 0, {})


def fake(name: str, script: str, *programs: str) -> Software:
    """Software whose installation is a line of Python."""
    return Software(name, "1", programs, (), lambda _: [sys.executable, "-c", script])


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(interop, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize("text", [
    'go: x@v1: Get "https://a/x": dial tcp: lookup a: no such host',
    "go: x@v1: reading https://a/x: 403 Forbidden\n\tserver response: not available",
    "go: x@v1: module lookup disabled by GOPROXY=off",
    "go: x@v1 requires go >= 1.99 (running go 1.26; GOTOOLCHAIN=local)",
    "npm error code ENOTFOUND\nnpm error network request to https://a/b failed",
    "npm error code ETARGET\nnpm error notarget No matching version found for x@1",
    "npm error code E503\nnpm error 503 Service Unavailable - GET https://a/b",
    "\x1b[m[ERROR] Could not transfer artifact org.x:x:pom:1 from/to central: a: Unknown host a",
    "[ERROR] Cannot access central in offline mode and the artifact x has not been downloaded",
    "the installation timed out after 1800 s",
])
def test_a_registry_that_does_not_give_it(text: str) -> None:
    """It is missing, in the words of whoever asked for it."""
    state, reason = judge(f"downloading\n{text}\nmore\n")
    assert state is State.MISSING
    assert any(line.strip().removeprefix("\x1b[m") in reason for line in text.splitlines())


@pytest.mark.parametrize("text", [
    "# github.com/x/y\n./main.go:3:1: syntax error: unexpected newline",
    "verifying x@v1: checksum mismatch\n\tdownloaded: h1:a\nSECURITY ERROR: dial tcp",
    "npm error code EINTEGRITY\nnpm error sha512-a integrity checksum failed, ETIMEDOUT",
    "npm error code EUSAGE\nnpm error `npm ci` can only install with an existing package-lock.json",
    "[ERROR] Non-resolvable import POM", "Killed", "",
])
def test_anything_else_is_a_failure(text: str) -> None:
    """A compile error, a wrong checksum, a lock that does not fit, or no word at all."""
    assert judge(text)[0] is State.FAILED


def test_it_is_installed_once_and_completely(root: Path) -> None:
    """What fails leaves nothing behind; what succeeds is not repeated; an older one goes."""
    count = "open('count', 'a').write('x'); open('../counts', 'a').write('x')"
    assert install(fake("a", f"{count}; raise SystemExit(3)")).state is State.FAILED
    assert [path.name for path in root.iterdir()] == ["counts"]
    good = fake("a", count)
    for _ in range(2):
        assert install(good) == Installed(good, State.READY)
    assert (good.folder / "count").read_text() == "x"
    assert (root / "counts").read_text() == "xx"
    newer = fake("a", f"{count}  # newer")
    assert install(newer).state is State.READY
    assert (newer.folder.is_dir(), good.folder.is_dir()) == (True, False)


def test_a_program_that_is_not_there() -> None:
    """Go, Java and Maven are not installed by this repository."""
    installed = install(fake("a", "", "no-such-program"))
    assert (installed.state, installed.reason) == (
        State.MISSING, "no-such-program is not on the path")
    assert java_problem('openjdk version "17.0.15" 2025-04-15') == ""
    assert java_problem('openjdk version "25" 2025-09-16') == ""
    assert java_problem('java version "1.8.0_391"') == "Java 17 or newer is needed, this is 8"
    assert "this is none" in java_problem("")


def test_what_is_skipped_is_said_aloud() -> None:
    """Which software, why, and every test that did not run for want of it."""
    results = read_results(REPORT)
    assert (results.passed, results.failed) == (1, 0)
    lines = summary([Installed(SOFTWARE[0], State.READY),
                     Installed(SOFTWARE[1], State.MISSING, "no npm")], results)
    assert lines == [
        "versitygw 1.8.0      ready",
        "azurite 3.36.0       MISSING: no npm",
        "SKIPPED 2 tests, azurite is MISSING: no npm",
        "    test_objects.py::test_a[azurite]",
        "    test_node.py::test_b[azurite]",
        "SKIPPED 1 tests, no reason given",
        "    test_node.py::test_c",
        "1 passed, 0 failed, 3 SKIPPED"]
    assert summary([], FINE) == ["3 passed, 0 failed, none skipped"]
    assert summary([], None) == ["the tests did not run to their end"]


def test_when_it_is_red() -> None:
    """A skip is not, unless it is strict; a failed set-up and a failed test are."""
    ready = [Installed(each, State.READY) for each in SOFTWARE]
    missing = [*ready[1:], Installed(SOFTWARE[0], State.MISSING, "x")]
    failed = [*ready[1:], Installed(SOFTWARE[0], State.FAILED, "x")]
    skipped = read_results(REPORT)
    assert exit_code(ready, FINE, 0, strict=True) == 0
    assert exit_code(missing, skipped, 0, strict=False) == 0
    assert exit_code(missing, skipped, 0, strict=True) == 1
    assert exit_code(failed, skipped, 0, strict=False) == 1
    assert exit_code(ready, read_results(BROKEN), 1, strict=False) == 1
    assert exit_code(ready, None, 2, strict=False) == 1
    assert exit_code(ready, FINE, 5, strict=False) == 1  # pytest found no test


def test_tests_without_their_software_are_skipped_with_the_reason(tmp_path: Path) -> None:
    """None of them passes for want of it."""
    problems = {each.name: f"{each.name} is MISSING: for a test" for each in SOFTWARE}
    report = tmp_path / "report.xml"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "interop", "-p", "no:cacheprovider",
         f"--junitxml={report}", "tests/interop"],
        cwd=interop.REPOSITORY, env={**os.environ, interop.PROBLEMS: json.dumps(problems)},
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    results = read_results(report.read_text())
    assert (results.passed, results.failed) == (0, 0)
    behind = {"clients", "spark", "java", "franz"}  # their tests also need kafka, which is first
    assert {why for name, why in problems.items() if name not in behind} <= set(results.skipped)
    assert set(results.skipped) <= set(problems.values())
    assert sum(map(len, results.skipped.values())) == len(
        list(ET.parse(report).iter("testcase"))) > 30


def test_what_needs_other_software_shares_its_fate() -> None:
    """Our Java programs cannot be compiled without Kafka's jars, and say so."""
    first, second = fake("first", ""), fake("second", "")._replace(needs=("first",))
    assert unfounded(second, [Installed(first, State.READY)]) is None
    assert unfounded(second, [Installed(first, State.MISSING, "no registry")]) == Installed(
        second, State.MISSING, "it needs first")
    assert unfounded(first, [Installed(second, State.FAILED, "x")]) is None


def test_pins_are_the_versions_that_are_told() -> None:
    """In package.json, pom.xml and go.mod as in the table."""
    by_name = {each.name: each for each in SOFTWARE}
    package = json.loads((interop.TESTS / "azurite" / "package.json").read_text())
    assert package["dependencies"] == {"azurite": by_name["azurite"].version}
    pom = (interop.TESTS / "kafka" / "pom.xml").read_text()
    assert f"<kafka.version>{by_name['kafka'].version}</kafka.version>" in pom
    command = by_name["versitygw"].command(Path())
    assert command[-1].endswith(f"@v{by_name['versitygw'].version}")
    connector = (interop.TESTS / "spark" / "pom.xml").read_text()
    assert f"""<artifactId>spark-sql-kafka-0-10_2.13</artifactId>
              <version>{by_name['spark'].version}</version>""" in connector
    modules = (interop.TESTS / "franz" / "go.mod").read_text()
    assert f"twmb/franz-go v{by_name['franz'].version}\n" in modules
    modules = (interop.TESTS / "prometheus" / "go.mod").read_text()
    assert f"prometheus/prometheus v{by_name['prometheus'].version}\n" in modules
