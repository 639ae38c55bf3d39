# cython: language_level=3
"""A mapped file without a descriptor.  `mapping.py` says why."""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport errno
from libc.stdlib cimport getenv

cdef const char *_pure = getenv(b"QUIPU_PURE")
if _pure != NULL and _pure[0] != 0 and _pure[0] != b"0":
    raise ImportError("QUIPU_PURE is set: the compiled functions stay unused")

import os

cdef extern from "sys/mman.h":
    void *mmap(void *address, size_t size, int protection, int flags, int fd, long offset) nogil
    int munmap(void *address, size_t size) nogil
    int madvise(void *address, size_t size, int advice) nogil
    int PROT_READ, MAP_SHARED, MADV_DONTNEED
    void *MAP_FAILED


cdef class Mapping:
    """The first `size` bytes of a file, read-only; unmapped when nobody holds a view of it."""

    cdef void *_address
    cdef Py_ssize_t _size

    def __cinit__(self, int fd, Py_ssize_t size):
        self._address = MAP_FAILED
        self._size = size
        if size <= 0:
            raise ValueError("an empty map")
        self._address = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0)
        if self._address == MAP_FAILED:
            raise OSError(errno, os.strerror(errno))

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self._address, self._size, 1, flags)

    def __releasebuffer__(self, Py_buffer *buffer):
        pass

    def __dealloc__(self):
        if self._address != MAP_FAILED:
            munmap(self._address, self._size)

    def release(self, Py_ssize_t end):
        """Give back the memory of the first `end` bytes; they can be read again."""
        madvise(self._address, min(max(end, 0), self._size), MADV_DONTNEED)
