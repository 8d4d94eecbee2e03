# SPDX-License-Identifier: BSD-3-Clause
# Integers from Python, with errors that name the argument: those of a typed argument
# do not ("an integer is required"), and a call has several.
#
# To be called before locks are taken and states looked at: __index__ of another type
# may run anything.

from libc.limits cimport INT_MAX, INT_MIN, LONG_MAX, LONG_MIN

cdef extern from "Python.h":
    void *PyErr_Occurred() noexcept
    int PyErr_ExceptionMatches(object) noexcept
    void PyErr_Clear() noexcept
    object PyNumber_Index(object)

# Called as if they raised nothing, for a "try" saves and restores what is being
# handled, and nearly all succeed.  -1 may be an error.
ctypedef uint64_t (*unsigned_t)(object) noexcept
ctypedef long (*signed_t)(object) noexcept


cdef inline uint64_t as_unsigned(value) except? -1:
    return value


cdef inline long as_signed(value) except? -1:
    return value


cdef inline uint64_t whole(value, str name, uint64_t most=0xffffffffffffffff) except? -1:
    """An integer from 0 to ``most``.

    Raises TypeError for what is no integer, OverflowError for what is outside.
    """
    cdef uint64_t number = (<unsigned_t>as_unsigned)(value)
    if number > most or (number + 1 == 0 and PyErr_Occurred() != NULL):
        named_error(value, name, 0, most)
    return number


cdef inline long signed_whole(value, str name, long least=LONG_MIN,
                              long most=LONG_MAX) except? -1:
    """An integer that may be negative, for what is checked, and named, further on."""
    cdef long number = (<signed_t>as_signed)(value)
    if not least <= number <= most or (number == -1 and PyErr_Occurred() != NULL):
        named_error(value, name, least, most)
    return number


cdef inline int signed_int(value, str name) except? -1:
    """As signed_whole, of C's int."""
    return <int>signed_whole(value, name, INT_MIN, INT_MAX)


cdef inline object integer(value, str name):
    """An int of any size."""
    if type(value) is int:
        return value
    try:
        return PyNumber_Index(value)
    except TypeError:
        not_whole(value, name)


cdef bint clear_error() noexcept:
    """Clear the error of a conversion; one that __index__ raised by itself stays."""
    if not (PyErr_ExceptionMatches(TypeError) or PyErr_ExceptionMatches(OverflowError)):
        return False
    PyErr_Clear()
    return True


cdef int named_error(value, str name, object least, object most) except -1:
    """Raise what is wrong."""
    if PyErr_Occurred() != NULL and not clear_error():
        return -1
    outside(integer(value, name), name, least, most)


cdef int not_whole(value, str name) except -1:
    raise TypeError(f"{name} must be an integer, not "
                    f"{type(value).__name__}") from None


cdef int outside(number, str name, object least, object most) except -1:
    # without the number: Python refuses to print integers of thousands of digits
    is_small = number < least
    what = "must not be negative" if is_small and least == 0 else "is too " + (
        "small" if is_small else "large")
    raise OverflowError(f"{name} {what}: {least} to {most} can be") from None


cdef str shown(number):
    """An integer for a message, also one of thousands of digits."""
    if -1 << 200 < number < 1 << 200:
        return f"{number}"
    return "less than -2**200" if number < 0 else "more than 2**200"
