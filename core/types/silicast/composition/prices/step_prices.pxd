cimport cython
from silicast.composition.prices.decode_lengths cimport DecodeLengths

cdef class StepPrices:
    cdef public object model, graph, timer
    cdef public object _boost, _limit, _tables, _last, _fills
    cdef public double _top_hz
    cdef public bint _never_slowed, _by_longest, _sees_each, _asynchronous
    cdef public dict _rows, _decodes, _errors, _parts, _exact
    cdef public list _surfaces, _prefills, _by_lengths
    cdef public double gap_s

    cpdef price(self, prefill, decode_kv, long long elsewhere=*)
    cdef _decoded(self, DecodeLengths cached, long long elsewhere)
    @cython.locals(count=cython.longlong, longest=cython.longlong, seen=cython.longlong,
                   work_s=double, core_j=double, memory_j=double, pass_s=double, hidden=double,
                   seconds=double, stages_s=list, values=tuple)
    cdef _alone(self, DecodeLengths cached, long long elsewhere)
    cdef _step(self, prefill, DecodeLengths decode_kv, long long elsewhere)
    @cython.locals(sums=list, parts=list)
    cdef list _at(self, long long position, step)
    cdef _share_lengths(self, list parts, list sums, nodes_s)
    cdef double _waits_s(self, launches, nodes_s)
    cdef double _work_s(self, step)
    @cython.locals(pass_s=double, hidden=double)
    cdef _work(self, double waits_s, list sums, double work_s)
