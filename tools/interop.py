"""`make interop`: tests with software of other makers, got from package registries.

    python tools/interop.py [ARGUMENTS OF PYTEST]

    versitygw      an S3 server                             by `go install`
    azurite        an emulator of Azure Blob Storage        by npm, with the Node.js in .venv
    kafka          Apache Kafka: server, tools, Streams, Connect  by Maven
    clients        Java clients of earlier generations      by Maven
    spark          Spark's own Kafka connector              by Maven
    java           our own programs for all of these        by javac, with Kafka's jars
    franz          a client with franz-go, our own program  by `go build`
    prometheus     its parser and evaluator of alert rules  by `go build`

Versions are pinned here, in package-lock.json, go.sum and pom.xml.  Each is installed into a folder
of .interop that is named by a digest of these, complete or not at all; so a second run installs
nothing.  A lock file makes a second run in one clone wait.  Then tests/interop runs.

What cannot be had is said at the end, with the tests that were skipped for want of it:

    MISSING    a program (go, java, mvn) is not there or too old, or the registry does not respond
               or does not have the package; its tests are skipped, and the exit code stays 0
    FAILED     anything else, such as a compile error or a wrong checksum: exit code 1

With QUIPU_INTEROP_STRICT=1 a test that is skipped, for whatever reason, makes the exit code 1.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from tools.setup import exclusive, npm_command  # noqa: E402 the repository is on the path now

ROOT = REPOSITORY / ".interop"
TESTS = REPOSITORY / "tests" / "interop"
PROBLEMS = "QUIPU_INTEROP_PROBLEMS"  # for the tests: JSON, name of software -> why it is not there
STRICT = "QUIPU_INTEROP_STRICT"
JAVA_MIN = 17
MAVEN = ("mvn", "-B", "-q", "-Dstyle.color=never")
MAVEN_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
JAVA_FILES = ("Driver.java", "Generation.java", "Counting.java")
SECONDS_MAX = 1800.0  # of one installation
TAIL_LINES = 40  # of a failed installation

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_WRONG = re.compile(r"checksum mismatch|SECURITY ERROR|EINTEGRITY|ChecksumFailure|"
                    r"Checksum validation failed", re.IGNORECASE)
_WANT = re.compile(
    # Go's words, then npm's, then Maven's
    r"dial tcp|no such host|i/o timeout|TLS handshake timeout|module lookup disabled|"
    r"server response:|: (?:403 Forbidden|404 Not Found|410 Gone|5\d\d )|requires go >=|"
    r"ENOTFOUND|ECONNREFUSED|ECONNRESET|ETIMEDOUT|EAI_AGAIN|ENETUNREACH|ENOTCACHED|ETARGET|"
    r"npm error code E(?:4\d\d|5\d\d)|"
    r"Could not (?:transfer|find) (?:artifact|metadata)|Unknown host|in offline mode|"
    r"Could not resolve dependencies|was not found in http|"
    # any of them
    r"connection refused|connection reset|network is unreachable|name resolution|timed out",
    re.IGNORECASE)


class State(Enum):
    """What became of an installation."""

    READY = "ready"
    MISSING = "MISSING"
    FAILED = "FAILED"


class Software(NamedTuple):
    """What is installed, and how."""

    name: str
    version: str
    programs: tuple[str, ...]  # that must be on the path
    inputs: tuple[str, ...]  # files of tests/interop that decide what is installed
    command: Callable[[Path], Sequence[str]]  # installs into a folder that has the inputs
    variables: Callable[[Path], Mapping[str, str]] = lambda _: {}
    needs: tuple[str, ...] = ()  # other software, which is installed before

    @property
    def folder(self) -> Path:
        """Where it is, if it is installed."""
        total = hashlib.sha256(f"{self.version} {self.command(Path())}".encode())
        for name in self.inputs:
            total.update((TESTS / name).read_bytes())
        return ROOT / f"{self.name}-{total.hexdigest()[:16]}"


class Installed(NamedTuple):
    """What became of one installation, and why."""

    software: Software
    state: State
    reason: str = ""


KAFKA = Software(
    "kafka", "4.2.0", ("java", "mvn"), ("kafka/pom.xml",),
    lambda folder: [*MAVEN, f"{MAVEN_PLUGIN}:copy-dependencies", "-DincludeScope=runtime",
                    f"-DoutputDirectory={folder / 'jars'}"])
SOFTWARE = (
    Software(
        "versitygw", "1.8.0", ("go",), (),
        lambda _: ["go", "install", "github.com/versity/versitygw/cmd/versitygw@v1.8.0"],
        lambda folder: {"GOBIN": str(folder)}),
    Software(
        "azurite", "3.36.0", (),
        ("azurite/package.json", "azurite/package-lock.json", "azurite/.npmrc"),
        lambda _: npm_command("ci", "--no-audit", "--no-fund", "--ignore-scripts",
                              "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000")),
    KAFKA,
    Software(
        "clients", "2.1 to 3.9", ("java", "mvn"), ("clients/pom.xml",),
        lambda _: [*MAVEN, f"{MAVEN_PLUGIN}:copy"]),
    Software(
        "spark", "4.2.0", ("java", "mvn"), ("spark/pom.xml",),
        lambda _: [*MAVEN, f"{MAVEN_PLUGIN}:copy"]),
    Software(
        "java", "1", ("java", "javac"), tuple(f"java/{name}" for name in JAVA_FILES),
        lambda folder: ["javac", "-Xlint:-options", "-d", str(folder / "classes"),
                        "-cp", f"{KAFKA.folder / 'jars'}/*", *JAVA_FILES],
        needs=("kafka",)),
    Software(
        "franz", "1.22.2", ("go",), ("franz/go.mod", "franz/go.sum", "franz/main.go"),
        lambda _: ["go", "build", "-o", "franz", "."]),
    Software(
        "prometheus", "0.305.0", ("go",),
        ("prometheus/go.mod", "prometheus/go.sum", "prometheus/main.go"),
        lambda _: ["go", "build", "-o", "rules", "."]),
)


# -- pure: what an outcome means


def java_problem(version_text: str) -> str:
    """Why this Java cannot run the tools, by what `java -version` prints; empty if it can."""
    found = re.search(r'version "(?:1\.)?(\d+)', version_text)
    if found is None or int(found[1]) < JAVA_MIN:
        return f"Java {JAVA_MIN} or newer is needed, this is {found[1] if found else 'none'}"
    return ""


def judge(output: str) -> tuple[State, str]:
    """What a failed installation means, by what it printed, and the line that says so."""
    plain = _COLOURS.sub("", output)
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    for line in lines:
        if _WRONG.search(line):
            return State.FAILED, line
    for line in lines:
        if _WANT.search(line):
            return State.MISSING, f"its registry did not give it: {line[:300]}"
    return State.FAILED, lines[-1] if lines else "it printed nothing"


def unfounded(software: Software, installed: Iterable[Installed]) -> Installed | None:
    """Why a software cannot be installed: another that it needs is not there."""
    for each in installed:
        if each.software.name in software.needs and each.state is not State.READY:
            return Installed(software, each.state, f"it needs {each.software.name}")
    return None


class Results(NamedTuple):
    """What pytest reported: counts of tests, and the names of skipped ones by reason."""

    passed: int
    failed: int
    skipped: Mapping[str, Sequence[str]]


def read_results(report: str) -> Results:
    """What a JUnit report says."""
    passed = failed = 0
    skipped: dict[str, list[str]] = {}
    for case in ET.fromstring(report).iter("testcase"):  # noqa: S314 pytest's own, just written
        skip = case.find("skipped")
        if skip is not None:
            name = f"{case.get('classname', '').rpartition('.')[2]}.py::{case.get('name')}"
            skipped.setdefault(skip.get("message") or "no reason given", []).append(name)
        elif case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        else:
            passed += 1
    return Results(passed, failed, skipped)


def summary(installed: Iterable[Installed], results: Results | None) -> list[str]:
    """What is printed at the end."""
    lines = []
    for each in installed:
        title = f"{each.software.name} {each.software.version}"
        reason = f": {each.reason}" if each.reason else ""
        lines.append(f"{title:<20} {each.state.value}{reason}")
    if results is None:
        return [*lines, "the tests did not run to their end"]
    for reason, names in results.skipped.items():
        lines.append(f"SKIPPED {len(names)} tests, {reason}")
        lines += [f"    {name}" for name in names]
    count = sum(map(len, results.skipped.values()))
    return [*lines, f"{results.passed} passed, {results.failed} failed, {count} SKIPPED"
            if count else f"{results.passed} passed, {results.failed} failed, none skipped"]


def exit_code(
    installed: Iterable[Installed], results: Results | None, pytest_code: int, *, strict: bool
) -> int:
    """0 if all is well, or only software is missing that no registry gave."""
    if pytest_code != 0 or results is None or results.failed:
        return 1
    if any(each.state is State.FAILED for each in installed):
        return 1
    return 1 if strict and results.skipped else 0


# -- the shell around it


def install(software: Software) -> Installed:
    """Install one, unless it is there."""
    folder = software.folder
    if folder.is_dir():
        return Installed(software, State.READY)
    for program in software.programs:
        if shutil.which(program) is None:
            return Installed(software, State.MISSING, f"{program} is not on the path")
    if "java" in software.programs:
        shown = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
        if problem := java_problem(shown.stderr + shown.stdout):
            return Installed(software, State.MISSING, problem)
    print(f"interop: installing {software.name} {software.version}", flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(dir=ROOT, prefix="new-") as scratch:
        output = _run(software, Path(scratch))
        if output is not None:
            print("\n".join(output.splitlines()[-TAIL_LINES:]), flush=True)
            return Installed(software, *judge(output))
        for old in ROOT.glob(f"{software.name}-*"):
            shutil.rmtree(old)
        Path(scratch).rename(folder)
        Path(scratch).mkdir()  # for its end
    folder.chmod(0o755)
    print(f"interop: {software.name} took {time.monotonic() - begun:.0f} s", flush=True)
    return Installed(software, State.READY)


def _run(software: Software, folder: Path) -> str | None:
    """Install into a folder; what was printed if that fails, None if it succeeds."""
    for name in software.inputs:
        shutil.copy(TESTS / name, folder)
    try:
        done = subprocess.run(
            software.command(folder), cwd=folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            timeout=SECONDS_MAX, env={**os.environ, **software.variables(folder)})
    except subprocess.TimeoutExpired:
        return f"the installation timed out after {SECONDS_MAX:.0f} s"
    return done.stdout if done.returncode != 0 else None


def run_tests(installed: Iterable[Installed], arguments: Sequence[str]) -> tuple[int, str | None]:
    """The exit code of pytest, and its report if there is one."""
    problems = {each.software.name: f"{each.software.name} is {each.state.value}: {each.reason}"
                for each in installed if each.state is not State.READY}
    with tempfile.TemporaryDirectory(prefix="quipu-interop-") as scratch:
        report = Path(scratch) / "report.xml"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-m", "interop", "-rs", f"--junitxml={report}",
             "tests/interop", *arguments],
            cwd=REPOSITORY, stdin=subprocess.DEVNULL, check=False,
            env={**os.environ, PROBLEMS: json.dumps(problems)})
        return done.returncode, report.read_text() if report.exists() else None


def main(arguments: Sequence[str]) -> int:
    """Install, test, and say what is missing."""
    ROOT.mkdir(exist_ok=True)
    with exclusive(ROOT / "lock"):
        for unfinished in ROOT.glob("new-*"):  # of a run that was killed
            shutil.rmtree(unfinished)
        installed: list[Installed] = []
        for each in SOFTWARE:
            installed.append(unfounded(each, installed) or install(each))
    code, report = run_tests(installed, arguments)
    results = None if report is None else read_results(report)
    print()
    for line in summary(installed, results):
        print(f"interop: {line}", flush=True)
    return exit_code(installed, results, code, strict=os.environ.get(STRICT) == "1")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
