cdef class StepPlan:
    cdef public list prefill, decode
    cdef public long long each, copy_ns, load_ns
