cdef class StepTables:
    cdef public object model, graph, timer
    cdef public object _parts, _device, _fills
    cdef public dict _blocks, _known, _asked
    cdef public long long _numbers
    cdef public list _by_tokens
