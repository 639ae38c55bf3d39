"""The process that makes one pass of compaction: `python -m quipu.storage.compaction.child`.

Gets a job on its standard input (messages.py), and writes a line for each segment that the log can
take.  The broker starts it (broker/partitions/cleaning.py).
"""

import sys

from quipu.model.errors import QuipuError
from quipu.runtime.child_process import ChildPace, read_request, write_line
from quipu.runtime.disks.disk import RealDisk
from quipu.storage.compaction.messages import decode_job, encode_outcome
from quipu.storage.compaction.worker import compact


def main() -> None:
    """Make the pass; ends the process with code 1 and a message if that fails."""
    job, secret, rate = decode_job(read_request())
    try:
        for outcome in compact(RealDisk(), job, secret, ChildPace(rate)):
            write_line(encode_outcome(outcome))
    except QuipuError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
