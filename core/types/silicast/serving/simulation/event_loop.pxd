cimport cython

cdef class Simulation:
    cdef public object requests, done, sequences, records
    cdef public list replicas
    cdef public list _specs, _entries, _decoders, _sends_ns, _takes_ns, _events, _order, _ready, _fronts
    cdef public object _link, _router, _decode_router
    cdef public dict _moving, _later
    cdef public long long _warming, _measured_ns, _next, _in_flight
    cdef public const long long[::1] _arrival, _after
    cdef public tuple _ended

    cdef bint _take(self, long long now, long long kind, long long number)
    cdef _measure(self, long long now_ns)
    cdef _arrive(self, replica, long long request, long long now_ns)
    cdef _wake(self, replica, long long now_ns)
    @cython.locals(request=cython.longlong, arrival_ns=cython.longlong)
    cdef _open(self)
    @cython.locals(next_arrival_ns=cython.longlong, time_ns=cython.longlong, kind=cython.longlong)
    cdef long long _next_arrival_ns(self)
    cdef _push(self, replica)
    cdef _ready_to_send(self, long long request, long long now_ns)
    cdef _send(self, long long request, long long now_ns)
    cdef _answered(self, long long request, long long now_ns)
