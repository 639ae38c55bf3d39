from quipu.wire._scan_pure import Expected, Run

def scan_run(
    data: memoryview, position: int, expected: Expected, *, mark_due: int, mark_interval: int
) -> Run: ...
def sound_end(
    data: memoryview, position: int, end: int, log_offset: int
) -> tuple[int, int]: ...
