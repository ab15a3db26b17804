cimport cython

cdef class Stepper:
    cdef public object prices
    cdef public long long now_ns, started_ns, in_flight
    cdef public bint asynchronous
    cdef public long long _gap_ns
    cdef public list _free_ns
    cdef public bint _idle

    @cython.locals(work=cython.longlong, start=cython.longlong, end=cython.longlong,
                   stage=cython.longlong, seconds=double)
    cpdef step(self, prefill, decode_kv, long long elsewhere=*, long long decided_ns=*,
               long long copy_ns=*, long long least_ns=*)
    @cython.locals(work=cython.longlong, gap=cython.longlong, start=cython.longlong,
                   took=cython.longlong, starts=list, ends=list, stage=double, wait=double)
    cpdef run(self, decode_kv, long long steps, long long elsewhere=*)
    cpdef take(self, run, long long steps)
    cdef long long _start_ns(self, long long work_ns)
    cpdef idle_until(self, long long time_ns)

cpdef long long to_ns(double seconds)

cdef class PacedPrices:
    cdef public object _prices, _pace
