# SPDX-License-Identifier: BSD-3-Clause
# A typed argument takes integers only.
#
# Cython turns what is not an int into a C integer by the type's nb_int, so that
# 1.5 bytes would silently be 1 byte.  PEP 357 has nb_index for what is an integer.
# Cython has no directive for it; the slot's name is in its one conversion function
# only.  tests/package/test_integers.py notices if that changes.
cdef extern from *:
    """
    #define nb_int nb_index
    """
