cimport cython
from silicast.composition.prices.stepper cimport Stepper
from silicast.serving.simulation.cohort cimport Cohort
from silicast.serving.simulation.group cimport QueueGroup, SimulatedRequests
from silicast.serving.simulation.scheduler cimport StepPlan

cdef class Replica:
    cdef public long long number, outstanding, begun
    cdef public Stepper stepper
    cdef public list schedulers, groups
    cdef public SimulatedRequests sequences
    cdef public object _records, _finish, _hand_over, _accepted, _lockstep, _joining, _arrived, _work
    cdef public str role
    cdef public long long _back_ns
    cdef public const long long[::1] _goals
    cdef public long long[::1] _scheduled, _first, _answered, _served, _token_ns
    cdef public bint _timed, _together
    cdef public dict _handed
    cdef public list _ended

    cpdef end(self, long long now_ns, long long until_ns)
    cpdef wake(self, long long now_ns, long long until_ns)
    @cython.locals(alone=cython.bint, empty=cython.bint, plan=StepPlan, group=QueueGroup)
    cpdef bint _begin(self, long long decided_ns, long long until_ns)
    @cython.locals(group=QueueGroup)
    cdef _take_in(self, long long decided_ns)
    cdef _cut_for_known(self)
    cdef _tell_time(self)
    cdef _join(self)
    cdef _release(self)
    @cython.locals(group=QueueGroup, plan=StepPlan)
    cdef list _decoding(self, list plans)
    @cython.locals(plan=StepPlan, prompts=cython.longlong, filling=cython.longlong,
                   past=cython.longlong, there=cython.longlong, count=cython.longlong,
                   new=cython.longlong)
    cdef tuple _counts(self, list plans, list decoding)
    @cython.locals(group=QueueGroup, plan=StepPlan, grown=cython.longlong, blocks=cython.longlong,
                   ended=list)
    cdef list _results(self, work)
    @cython.locals(plan=StepPlan, made="long long[::1]", cached="long long[::1]",
                   new=cython.longlong)
    cdef list _prompts(self, StepPlan plan, QueueGroup group, long long end_ns)
    cdef _gaps(self, Cohort cohort, work)
    cdef _done(self, long long request, long long end_ns)
    @cython.locals(group=QueueGroup, running=cython.longlong, waiting=cython.longlong,
                   blocks=cython.longlong)
    cdef tuple _queues(self)
