"""Faults of the machine under a job, as errors with one line: the disk, the study's storage, memory."""

from __future__ import annotations

import errno

from tuner.errors import BadRequest, EngineUnavailable, TuneError
from tuner.study.storage_faults import AGAIN, storage_fault

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_CLOSED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


def told_plainly(error: Exception) -> TuneError | None:
    """The error that a user is told for one of these faults; None for any other exception.

    A full disk and a storage that is away end a job with exit 5, a folder that cannot be written with 2.
    """
    if isinstance(error, MemoryError):
        return EngineUnavailable("this machine's memory is used up", f"free some, {AGAIN}")
    if isinstance(error, OSError):
        return _of_the_disk(error)
    return storage_fault(error)


def _of_the_disk(error: OSError) -> TuneError:
    where = f"{error.filename}: " if error.filename else ""
    what = f"{where}{error.strerror or error}"
    if error.errno in _FULL:
        return EngineUnavailable(what, f"free some space, {AGAIN}")
    if error.errno in _CLOSED:
        return BadRequest(what, "name a folder that can be written with --studies, or mend its rights")
    return BadRequest(what)
