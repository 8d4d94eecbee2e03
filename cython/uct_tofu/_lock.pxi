# SPDX-License-Identifier: BSD-3-Clause
# _Lock: one caller at a time for what the library wants serialised.
#
# The library wants it for VCQs that share a CQ (2.5).  Most calls here hold the
# GIL, which serialises them among each other, but registration and waits do not.
# Rules: nobody waits for the lock while holding the GIL, and nobody makes Python
# objects while holding the lock (a collection could then run a __dealloc__ that
# wants it).

cdef extern from "<pthread.h>" nogil:
    int pthread_mutex_init(pthread_mutex_t *, void *)
    int pthread_mutex_destroy(pthread_mutex_t *)
    int pthread_mutex_lock(pthread_mutex_t *)
    int pthread_mutex_trylock(pthread_mutex_t *)
    int pthread_mutex_unlock(pthread_mutex_t *)


cdef class _Lock:
    def __cinit__(self):
        pthread_mutex_init(&self.mutex, NULL)
        self.generation = fork_generation

    def __dealloc__(self):
        # In a child a thread of the parent may hold it for ever.
        if self.generation == fork_generation:
            pthread_mutex_destroy(&self.mutex)

    def __reduce__(self):
        raise TypeError("a lock cannot be copied")

    cdef void acquire(self) noexcept:
        if pthread_mutex_trylock(&self.mutex) != 0:
            with nogil:
                pthread_mutex_lock(&self.mutex)

    cdef void release(self) noexcept:
        pthread_mutex_unlock(&self.mutex)


cdef object cq_locks = weakref.WeakValueDictionary()


cdef _Lock cq_lock(int tni, int cq):
    """The lock of a CQ of this process."""
    key = (fork_generation, tni, cq)
    lock = cq_locks.get(key)
    if lock is None:
        lock = cq_locks.setdefault(key, _Lock())
    return lock
