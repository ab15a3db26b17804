cimport cython
from silicast.serving.simulation.cohort cimport Cohort

cdef class SimulatedRequests:
    cdef public object prompt, limit, content, todo, preemptions, reused, loaded, swaps
    cdef public object cached_then, made_then, held_then, want, traffic
    cdef public long long[::1] at_cached, at_made, at_held, at_want, at_end, at_base
    cdef public set unsettled

cdef class QueueGroup:
    cdef public SimulatedRequests sequences
    cdef public object layout, limits, waiting, swapped, prefix, host_bytes
    cdef public list running, filling
    cdef public set flying, fetched
    cdef public bint holding
    cdef public long long free, swap_free, now_ns
    cdef public object _link_ns
    cdef public dict loading, came_ns
    cdef public Cohort cohort

    @cython.locals(more=cython.longlong, held="long long[::1]")
    cpdef bint grow(self, long long request, long long tokens)
    cpdef apart(self, long long request)
    cpdef long long made(self, long long request)
    @cython.locals(blocks=cython.longlong)
    cpdef bint advance(self, list requests)
    cpdef lookup(self, long long request)
    cpdef start(self, long long request, long long reused=*)
    cpdef publish(self, long long request, long long tokens)
    cpdef list decoding(self)
    @cython.locals(free=cython.longlong, low=cython.longlong, high=cython.longlong,
                   middle=cython.longlong)
    cpdef long long steps_to_full(self, Cohort cohort, long long most)
