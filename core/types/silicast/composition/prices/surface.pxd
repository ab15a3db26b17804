cimport cython

cdef class Surface:
    cdef public object _states, _numbers, _evaluated, _near
    cdef public dict _cells, _last
    cdef public tuple _asked
    cdef public long long _together

    @cython.locals(octave=double, over=double)
    cpdef tuple at(self, long long index, long long count, double mean, double ratio)

    @cython.locals(low=double, high=double, least=double, most=double, octave=double, over=double,
                   level=cython.longlong, cells=dict)
    cpdef tuple _at_boost(self, long long count, double mean, double ratio)

@cython.locals(
    first=double, per_count=double, low=double, per_mean=double, least=double, per_ratio=double,
    right=double, up=double, left=double, down=double, s=double, t=double, u=double, v=double,
    far=double, near=double, a=double, b=double, c=double, d=double, e=double, f=double, g=double,
    h=double, columns=tuple)
cpdef tuple _between(tuple cell, long long count, double mean, double ratio)
