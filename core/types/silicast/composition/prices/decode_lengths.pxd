cdef class DecodeLengths:
    cdef public long long count, total, longest
    cdef public object _each
    cdef public long long _more

    cpdef sum(self)
    cpdef max(self)

