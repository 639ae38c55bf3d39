import numpy as np
import numpy.typing as npt

def sort_pairs(
    first: npt.NDArray[np.uint64], second: npt.NDArray[np.uint64],
) -> npt.NDArray[np.int64]: ...
def find_pairs(
    run_first: npt.NDArray[np.uint64], run_second: npt.NDArray[np.uint64],
    first: npt.NDArray[np.uint64], second: npt.NDArray[np.uint64], rest: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]: ...
