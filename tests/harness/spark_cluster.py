"""A real Spark cluster on this machine: a master and its workers, each a process of its own.

    with SparkCluster(tmp_path, workers=2) as cluster:
        connect(master=cluster.master, ...)
        cluster.executors()             # processes, by worker
        cluster.kill_executor(0)        # SIGKILL; its worker starts another one
        cluster.kill_worker(1)          # SIGKILL, its executors with it

The programs are those of the pip package: nothing else is needed for a cluster.  Everything listens
on loopback and on free ports.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pyspark

from quipu.pipeline.spark.session import java
from tests.harness.driver import session_of
from tests.harness.node import environment
from tests.harness.progress import wait_for

START_SECONDS_MAX = 600.0  # machines that run tests are busy
MEMORY = "1g"  # of a worker, for executors
LOG_TAIL_SIZE = 4_000
HOST = "127.0.0.1"

_MASTER = re.compile(r"Starting Spark master at (?P<url>spark://\S+)")
_REGISTERED = re.compile(r"Successfully registered with master")
_EXECUTOR = "CoarseGrainedExecutorBackend"


class SparkCluster:
    """A master of Spark and its workers, each a process of its own."""

    def __init__(self, folder: Path, *, workers: int = 2) -> None:
        self.folder = folder
        self.master = ""
        self._home = java.prepared(java.found())
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []  # the master, then the workers

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._launch("master", "org.apache.spark.deploy.master.Master")
            self.master = self._logged("master", _MASTER)["url"]
            for number in range(self._workers):
                self._launch(f"worker-{number}", "org.apache.spark.deploy.worker.Worker",
                             "--cores", "1", "--memory", MEMORY,
                             "--work-dir", str(self.folder / f"work-{number}"), self.master)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def await_workers(self) -> None:
        """Wait until the master knows all workers."""
        for number in range(self._workers):
            self._logged(f"worker-{number}", _REGISTERED)

    def executors(self) -> dict[int, list[psutil.Process]]:
        """The executors of each worker."""
        found: dict[int, list[psutil.Process]] = {}
        for number, worker in enumerate(self._processes[1:]):
            found[number] = []
            for process in session_of(worker.pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if any(_EXECUTOR in word for word in process.cmdline()):
                        found[number].append(process)
        return found

    def kill_executor(self, worker: int) -> None:
        """End an executor at once; the worker goes on."""
        for process in self.executors()[worker]:
            process.kill()

    def kill_worker(self, worker: int) -> None:
        """End a worker at once, with what it has started."""
        _kill(self._processes[1 + worker])

    def _launch(self, name: str, program: str, *arguments: str) -> None:
        spark = Path(pyspark.__file__).parent
        variables = {
            **environment(), "JAVA_HOME": str(self._home), "SPARK_HOME": str(spark),
            "SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1", "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_NO_DAEMONIZE": "1",
        }
        command = [str(spark / "bin" / "spark-class"), program, "--host", HOST, "--port", "0",
                   "--webui-port", "0", *arguments]
        with self._log(name).open("wb") as log:
            self._processes.append(subprocess.Popen(
                command, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, cwd=self.folder))

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _logged(self, name: str, wanted: re.Pattern[str]) -> re.Match[str]:
        """What a process has logged that matches; waited for while the cluster makes progress."""
        def text() -> str:
            return self._log(name).read_text(errors="replace")

        wait_for(
            lambda: wanted.search(text()) is not None, progress=lambda: len(text()),
            what=lambda: f"{name} logged:\n{text()[-LOG_TAIL_SIZE:]}", pause=0.05,
            processes=lambda: [each for process in self._processes
                               for each in session_of(process.pid)])
        found = wanted.search(text())
        assert found is not None
        return found

    def _end(self) -> None:
        for process in reversed(self._processes):
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process at once, with all of its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for straggler in session_of(process.pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            straggler.kill()
    process.wait()
