"""The buffers that wait on one connection: choosing those to send next, dropping sent ones."""

from collections import deque
from typing import Final

Buffer = bytes | bytearray | memoryview

BUFFERS_PER_SEND_MAX: Final = 1000  # the kernel accepts at most 1024
JOIN_SIZE_MAX: Final = 64 * 1024  # up to this, one copy is cheaper than many small buffers
PIECE_SIZE_MAX: Final = 4 * 1024  # a larger buffer is not small


def next_buffers(out: deque[Buffer]) -> list[Buffer]:
    """The buffers for the next system call; if all are small, they are joined into one."""
    if len(out) == 1:
        return [out[0]]
    total = 0
    for index, buffer in enumerate(out):
        size = len(buffer)
        total += size
        if size > PIECE_SIZE_MAX or total > JOIN_SIZE_MAX or index >= BUFFERS_PER_SEND_MAX:
            break
    else:
        joined = b"".join(out)
        out.clear()
        out.append(joined)
        return [joined]
    count = min(len(out), BUFFERS_PER_SEND_MAX)
    return [out[index] for index in range(count)] if count < len(out) else list(out)


def drop_sent(out: deque[Buffer], buffers: list[Buffer], sent: int) -> bool:
    """Remove what was sent from `out`; True if the socket accepted all of `buffers`."""
    for buffer in buffers:
        size = len(buffer)
        if sent < size:
            out[0] = memoryview(buffer)[sent:]
            return False
        sent -= size
        out.popleft()
    return True


def keep_own(out: deque[Buffer], count: int) -> None:
    """Copy what is left of the last `count` buffers, because the caller will overwrite them."""
    for index in range(max(0, len(out) - count), len(out)):
        buffer = out[index]
        if not isinstance(buffer, bytes):
            out[index] = bytes(buffer)
