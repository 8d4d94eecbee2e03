# SPDX-License-Identifier: BSD-3-Clause
# Help texts of attributes that are fields of the object ("cdef readonly"): Cython gives
# these a descriptor, but has no words for one.

cdef extern from "Python.h":
    ctypedef struct PyGetSetDef:
        const char *doc
    ctypedef struct PyGetSetDescrObject:
        PyGetSetDef *d_getset


cdef int document(cls, str name, const char *text) except -1:
    """Give an attribute its help text, a literal: it has to stay."""
    attribute = vars(cls)[name]
    if type(attribute) is not types.GetSetDescriptorType:
        raise TypeError(f"{cls.__name__}.{name} is not a field")
    (<PyGetSetDescrObject *>attribute).d_getset.doc = text
    return 0
