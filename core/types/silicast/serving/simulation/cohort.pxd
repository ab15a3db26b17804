cimport cython
from silicast.serving.simulation.group cimport SimulatedRequests
from silicast.composition.prices.decode_lengths cimport DecodeLengths

cdef class Cohort:
    cdef public SimulatedRequests _sequences
    cdef public object _layout
    cdef public const long long[::1] _goals
    cdef public long long[::1] _token_ns
    cdef public long long _size
    cdef public bint _plain
    cdef public list order
    cdef public set _members
    cdef public long long tick, last_ns
    cdef public dict late
    cdef public long long _written, _taken, _total
    cdef public list _ends, _longest, _wanting, _next_reserved
    cdef public long long _tight
    cdef public dict _reserved

    @cython.locals(order=list)
    cpdef become(self, list requests)
    @cython.locals(tick=cython.longlong, cached=cython.longlong, made=cython.longlong,
                   behind=cython.longlong, end=cython.longlong, base=cython.longlong,
                   want=cython.longlong, token_ns=cython.longlong, sequences=SimulatedRequests)
    cdef _join(self, long long request)
    @cython.locals(behind=cython.longlong, want=cython.longlong, size=cython.longlong,
                   sequences=SimulatedRequests)
    cpdef leave(self, long long request)
    cpdef long long made(self, long long request)
    @cython.locals(heap=list, head=tuple, longest=cython.longlong)
    cpdef DecodeLengths lengths(self)
    @cython.locals(heap=list)
    cpdef long long left(self)
    @cython.locals(heap=list, ended=list)
    cpdef list run(self, long long steps, long long end_ns)
    @cython.locals(until=cython.longlong, taken=cython.longlong, size=cython.longlong,
                   blocks=cython.longlong, until_part=cython.longlong, wanting=list,
                   tick=cython.longlong, want=cython.longlong)
    cpdef long long lacking(self, long long steps)
    @cython.locals(until=cython.longlong, blocks=cython.longlong, heap=list, want=cython.longlong)
    cpdef long long take(self, long long steps, long long free)
