"""What the process asks of its allocator, for fleets of ten thousands of engines.

A step over 40,000 engines takes and frees some hundred arrays of 20 MB each. Handed back to the kernel in between, each page
of them is cleared anew, which costs about as much as a sixth of the detectors' work (benchmarks/step.py).
"""

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc
_LARGEST_FROM_HEAP = 32 << 20  # bytes; glibc takes no more
_KEPT_FREE = (1 << 31) - 1  # bytes; an int is what mallopt takes


def keep_freed_memory() -> bool:
    """Let this process keep up to 2 GiB of what it frees for its next step. False where the C library cannot."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # musl and macOS
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_FROM_HEAP)) and bool(mallopt(_M_TRIM_THRESHOLD, _KEPT_FREE))
