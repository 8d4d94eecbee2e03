/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi-ext-next.h - the mpi-ext.h of the MPI library, if it has one, as Open MPI does.  A header of its own, because
 * compilers tell pedants of include_next, and can be told not to only for a whole file.
 */
#ifdef __GNUC__
#  pragma GCC system_header
#endif
#if defined(__has_include_next)
#  if __has_include_next(<mpi-ext.h>)
#    include_next <mpi-ext.h>
#  endif
#endif
