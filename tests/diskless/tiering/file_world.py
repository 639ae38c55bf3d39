"""A diskless topic in files, so that other processes can work on it."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from quipu.diskless.control_plane.sqlite import SqliteControlPlane
from quipu.diskless.tiering.executor import CopyResult, CopyTask, copy_task
from quipu.diskless.tiering.job import JobReport, JobTarget, TieredTopic, run_job
from quipu.runtime.objects.urls import open_store
from quipu.wire.record_batch import Record, encode_batch
from tests.diskless.tiering.world import AGED_MS, TOPIC, TOPIC_ID, World

PARTITIONS = 3
CHUNK_SIZE = 1_024


def copy_in_order(tasks: Sequence[CopyTask]) -> list[CopyResult]:
    """Copies in this process, the last segment first: the order of results means nothing."""
    return [copy_task(task) for task in reversed(tasks)]


class FileWorld(World):
    """A world in files, so that other processes can work on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "segments").mkdir(parents=True, exist_ok=True)
        (folder / "objects").mkdir(exist_ok=True)
        self.objects_url = (folder / "objects").absolute().as_uri()
        self.segments_url = (folder / "segments").absolute().as_uri()
        self.plane_path = str((folder / "plane.sqlite").absolute())
        super().__init__(
            SqliteControlPlane(self.plane_path), folder,
            objects=open_store(self.objects_url, lambda: 0),
            segments=open_store(self.segments_url, lambda: 0), chunk_size=CHUNK_SIZE)

    async def fill(self, objects: int = 8, size: int = 50) -> None:
        for number in range(objects):
            await self.commit({partition: [
                bytes(encode_batch([
                    Record(None, b"%d-%d-" % (number, i) + bytes(size), (), self.clock.now_ms())
                    for i in range(3)])) for _ in range(2)] for partition in range(PARTITIONS)})
            self.clock.advance_ms(1_000)
        self.clock.advance_ms(AGED_MS)

    async def run_job(
        self, copy_all: Callable[[Sequence[CopyTask]], Sequence[CopyResult]] = copy_in_order,
        *, segment_size: int = 1_000, wait_ms: int = 0,
    ) -> JobReport:
        topic = TieredTopic(TOPIC_ID, TOPIC, PARTITIONS, AGED_MS, segment_size, 0)
        target = JobTarget(self.objects_url, self.segments_url, CHUNK_SIZE, compress=False)
        return await run_job(self.services("job"), [topic], target, copy_all, wait_ms=wait_ms)

    def command(self, *more: str, segment_size: int = 1_000, lease_ms: int = 2_000) -> list[str]:
        """The command that moves everything of this topic."""
        return [
            sys.executable, "-m", "quipu", "diskless", "tier", "--control-plane",
            f"sqlite://{self.plane_path}", "--storage", self.objects_url, "--remote-storage",
            self.segments_url, "--metadata", self.metadata_url, "--cluster-id", "cluster",
            "--local-retention-ms", "0", "--segment-bytes", str(segment_size), "--chunk-bytes",
            str(CHUNK_SIZE), "--lease-ms", str(lease_ms), "--json", *more]

    def segment_bytes(self) -> dict[str, bytes]:
        """All segments, by partition and start offset."""
        root = Path(self.segments_url.removeprefix("file://"))
        return {f"{path.parent.name} {path.name[:20]}": path.read_bytes()
                for path in root.rglob("*.log")}
