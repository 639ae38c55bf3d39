"""Files: appended to, read, mapped and made durable.

    disk.py           `Disk`, through which a node uses files, and `RealDisk`
    files.py          open files, which may be more than there are descriptors
    mapping.py        files mapped into memory ...
    _mapping.pyx      ... by compiled code, which holds no descriptor
    errors.py         errors of a file system: transient or final
    descriptors.py    how the file descriptors of a process are divided
    work.py           runs work in a thread of the disk and waits for it
    sim_disk.py       a disk in memory for tests: loses and tears writes, fills up, flips bits

Start with disk.py.

Not here: the content of files (storage), the delays of simulated disks (sim/twins/disk.py).
"""
