cdef class Gaps:
    cdef public object _values, _counts
    cdef public tuple _known
    cpdef add(self, long long gap_ns, long long count)
    cpdef add_each(self, list gaps_ns, long long count)

cdef class StepLog:
    cdef public object _numbers
