cimport cython


cdef extern from "math.h" nogil:
    double ceil(double)
    double floor(double)
    double rint(double)
    double sqrt(double)


cdef class TreeTables:
    cdef int _computed, _all, _beyond, _splits, _regions
    cdef int[::1] _position, _range, _whole, _split, _shape, _queries, _total, _sums, _region, _rows
    cdef int[::1] _outside, _measured
    cdef unsigned char[::1] _bin_of, _mark, _who, _bound, _bins, _gathered, _numbers
    cdef short[::1] _leaf

    @cython.locals(
        row=Py_ssize_t, feature=Py_ssize_t, beyond="int[::1]", measured="int[::1]", total="int[::1]"
    )
    cdef void run(
        self, double[::1] real, long long[::1] whole, int[::1] operands, Py_ssize_t first,
        Py_ssize_t target, Py_ssize_t block
    )

    @cython.locals(
        bins="unsigned char[::1]", bin_of="unsigned char[::1]", beyond="int[::1]",
        measured="int[::1]", row=Py_ssize_t, feature=Py_ssize_t, source=Py_ssize_t,
        position=Py_ssize_t, table=Py_ssize_t, left_over=int, low=int, high=int, code=int,
        outside=int, mark="unsigned char"
    )
    cdef void _place_all(
        self, long long[::1] whole, int[::1] operands, Py_ssize_t first, Py_ssize_t block
    )

    @cython.locals(
        bins="unsigned char[::1]", region="int[::1]", row=Py_ssize_t, split=Py_ssize_t, parent=int,
        feature=Py_ssize_t, bound=int, gathered="unsigned char[::1]", rows="int[::1]", total="int[::1]",
        sums="int[::1]", number=int, count=Py_ssize_t, at=Py_ssize_t
    )
    cdef void _add_own(self, Py_ssize_t block)

    @cython.locals(
        bins="unsigned char[::1]", queries="int[::1]", bounds="unsigned char[::1]",
        leaves="short[::1]", trees=int, depth=int, at=Py_ssize_t, leaf_at=Py_ssize_t, total=int,
        leaf=int, level=int, _=int
    )
    cdef int _sum_of(self, Py_ssize_t part)

    @cython.locals(
        leaves="short[::1]", numbers="unsigned char[::1]", trees=int, depth=int, at=Py_ssize_t,
        leaf_at=Py_ssize_t, b=Py_ssize_t, c=Py_ssize_t, e=Py_ssize_t, width=Py_ssize_t,
        row=Py_ssize_t, _=int
    )
    cdef void _sum(
        self, Py_ssize_t part, unsigned char[::1] bins, int[::1] total, Py_ssize_t block,
        Py_ssize_t n
    )

    @cython.locals(
        queries="int[::1]", bounds="unsigned char[::1]", numbers="unsigned char[::1]",
        level=int, row=Py_ssize_t, source=Py_ssize_t, bound="unsigned char", tree=Py_ssize_t
    )
    cdef void _place_leaves(
        self, unsigned char[::1] bins, Py_ssize_t at, int depth, Py_ssize_t block, Py_ssize_t n,
        Py_ssize_t trees
    )


cdef class Tape:
    cdef int[::1] _steps, _operands, _inputs, _kinds, _outputs
    cdef double[::1] _constants, _real, _reals
    cdef long long[::1] _whole, _wholes
    cdef int _count, _input_count, _output_count, _block
    cdef list _tables
    cdef bint _exceeds
    cdef double _largest
    cdef long long _fraction, _half

    @cython.locals(at=Py_ssize_t, whole="long long", largest=double)
    cpdef list single(self, values)

    @cython.locals(
        d="double[::1]", i="long long[::1]", block=Py_ssize_t, start=Py_ssize_t, n=Py_ssize_t, at=Py_ssize_t, row=Py_ssize_t,
        target=Py_ssize_t, source=Py_ssize_t
    )
    cpdef rows(self, long long[:, ::1] values, double[:, ::1] results, Py_ssize_t count)

    @cython.locals(
        steps="int[::1]", operands="int[::1]", constants="double[::1]", step=Py_ssize_t, code=int, width=Py_ssize_t, n=Py_ssize_t, t=Py_ssize_t, x=Py_ssize_t, y=Py_ssize_t, z=Py_ssize_t, k=double, r=Py_ssize_t,
        reach=double, largest=double, fraction="long long", half="long long", best=int, u=double, v=double, w=double,
        s=double, at=Py_ssize_t, tables=TreeTables
    )
    cdef void _run(self, double[::1] d, long long[::1] i, Py_ssize_t block)
