# SPDX-License-Identifier: BSD-3-Clause
# Objects of a parent process are useless in a forked child, and freeing them
# there would free the parent's.  Each object notes the generation in which it
# was made.
import os as _os

from uct_tofu.errors import TofuForkError as _ForkError

cdef int fork_generation = 0


def _after_fork_in_child():
    global fork_generation
    fork_generation += 1


_os.register_at_fork(after_in_child=_after_fork_in_child)


cdef int check_generation(int generation, object what) except -1:
    if generation != fork_generation:
        raise _ForkError(
            "fork", -5, f"{what} was made before a fork and belongs to the parent "
            "process; make a new one in the child")
    return 0
