import numpy as np
import numpy.typing as npt

def sip128(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32], slots: npt.NDArray[np.uint8],
    key: tuple[int, int],
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]: ...
