# SPDX-License-Identifier: BSD-3-Clause
# Integers from Python, with errors that name the argument: those of a typed argument
# do not ("an integer is required"), and a call has several.

cdef inline uint64_t whole(value, str name, uint64_t most=0xffffffffffffffff) except? 0:
    """An integer from 0 to ``most``.

    Raises TypeError for what is no integer, OverflowError for what is outside.
    """
    cdef uint64_t number
    try:
        number = value
    except TypeError:
        not_whole(value, name)
    except OverflowError:
        outside(value, name, 0, most)
    if number > most:
        outside(value, name, 0, most)
    return number


cdef inline int signed_int(value, str name) except? 0:
    """An integer of C's int, for what is checked, and named, further on."""
    cdef int number
    try:
        number = value
    except TypeError:
        not_whole(value, name)
    except OverflowError:
        outside(value, name, -0x80000000, 0x7fffffff)
    return number


cdef int not_whole(value, str name) except -1:
    raise TypeError(f"{name} must be an integer, not "
                    f"{type(value).__name__}") from None


cdef int outside(value, str name, object least, object most) except -1:
    # without the value: Python refuses to print integers of thousands of digits
    is_small = operator.index(value) < least
    what = "must not be negative" if is_small and least == 0 else "is too " + (
        "small" if is_small else "large")
    raise OverflowError(f"{name} {what}: {least} to {most} can be") from None
