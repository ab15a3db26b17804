from silicast.composition.prices.surface cimport Surface

cdef class DecodeSurface:
    cdef public object _calls, _rest_s
    cdef public Surface _surface
    cdef public long long _window
    cdef public object _chunked
    cpdef at(self, long long index, cached, long long tokens, long long longest)
