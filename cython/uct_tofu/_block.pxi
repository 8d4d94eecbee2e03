# SPDX-License-Identifier: BSD-3-Clause
# The end of a "with" block.  USED is defined before this file is included: what
# closing raises when the object is in use.


cdef int end_block(close, tuple exc) except -1:
    """Close; an exception that ends the block (``exc``, of ``__exit__``) comes first.

    What stopped the block often leaves views, requests or endpoints behind, and then
    the object cannot be closed.  It stays open and is closed when it is collected.
    """
    try:
        close()
    except USED:
        if not exc or exc[0] is None:
            raise
    return 0
