"""``dataclass`` and ``replace`` as in the standard library, where their time counts.

The standard library writes the source of up to six methods for each class and compiles them,
0.4 ms a class, so that the classes behind one answer took a sixth of a command's time. Here the
rarest methods are closures, and so is ``__init__`` until :data:`MANY` objects were made: then the
standard library compiles the one that takes its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - for others
    from dataclasses import replace as replace  # noqa: PLC0414
else:
    from dataclasses import MISSING, FrozenInstanceError, field, fields
    from dataclasses import dataclass as _dataclass
    from operator import attrgetter
    from reprlib import recursive_repr

    MANY = 30
    """Objects of a class, from which on compiling takes less time than it saves."""

    def dataclass(cls=None, /, *, eq=True, repr=True, frozen=False, slots=False, kw_only=False):  # noqa: A002
        """As :func:`dataclasses.dataclass`, with the options that are used here."""

        def wrapped(cls):
            return _made(cls, eq, repr, frozen, slots, kw_only)

        return wrapped if cls is None else wrapped(cls)

    def replace(record, /, **changes):
        """As :func:`dataclasses.replace`, in half the time."""
        cls = type(record)
        names = _STATED.get(cls)
        if names is None:
            names = _STATED[cls] = tuple(each.name for each in fields(cls) if each.init)
        for name in names:
            if name not in changes:
                changes[name] = getattr(record, name)
        return cls(**changes)

    _STATED = {}
    """Class -> names of the fields that its objects are made with."""

    def _made(cls, eq, shown, frozen, slots, kw_only):
        stated = frozenset(vars(cls))
        stated_hash = "__hash__" in stated and (
            vars(cls)["__hash__"] is not None or "__eq__" not in stated
        )
        if not cls.__doc__:
            cls.__doc__ = cls.__name__
        # of a frozen base the standard library makes a frozen class, or says what is wrong
        of_frozen = any(
            vars(base)["__dataclass_params__"].frozen
            for base in cls.__mro__[1:]
            if "__dataclass_params__" in vars(base)
        )
        made = _dataclass(
            init=False,
            repr=False,
            eq=False,
            frozen=frozen and of_frozen,
            slots=slots,
            kw_only=kw_only,
        )(cls)
        params, members = made.__dataclass_params__, fields(made)
        params.init, params.repr, params.eq, params.frozen = True, shown, eq, frozen
        new = {}
        if "__init__" not in stated:
            new["__init__"] = _init_of(made, frozen, slots)
        if shown and "__repr__" not in stated:
            new["__repr__"] = _repr_of([each.name for each in members if each.repr])
        if eq and "__eq__" not in stated:
            new["__eq__"] = _eq_of(_values(m.name for m in members if m.compare))
        if eq and not stated_hash:
            hashed = (m.name for m in members if (m.compare if m.hash is None else m.hash))
            new["__hash__"] = _hash_of(_values(hashed)) if frozen else None
        if frozen and not of_frozen:
            names = frozenset(each.name for each in members)
            new["__setattr__"], new["__delattr__"] = _frozen(made, names)
            if slots and "__getstate__" not in stated:
                new["__getstate__"] = _state
            if slots and "__setstate__" not in stated:
                new["__setstate__"] = _with_state
        for name, value in new.items():
            if getattr(value, "__closure__", None):
                value.__qualname__ = f"{made.__qualname__}.{name}"
            setattr(made, name, value)
        return made

    def _init_of(cls, frozen, slots):
        """An ``__init__`` without source, which the compiled one replaces when it pays."""
        made = 0

        def init(self, *given, **named):
            nonlocal made
            made += 1
            if made > MANY or not _filled(self, given, named):
                cls.__init__ = compiled = _compiled_init(cls, frozen, slots)
                compiled(self, *given, **named)
            elif hasattr(cls, "__post_init__"):
                self.__post_init__()

        def _filled(self, given, named):
            """Sets all fields; False = the arguments are not what it takes."""
            members = fields(cls)
            order = [each.name for each in members if each.init and not each.kw_only]
            values = dict(zip(order, given, strict=False))
            if len(given) > len(order) or not values.keys().isdisjoint(named):
                return False
            values |= named
            if not values.keys() <= {each.name for each in members if each.init}:
                return False
            for each in members:
                value = values[each.name] if each.name in values else _usual(each, slots)
                if value is not MISSING:
                    object.__setattr__(self, each.name, value)
                elif each.init:
                    return False
            return True

        return init

    def _usual(member, slots):
        """What a field has that is not given; ``MISSING`` = nothing, or what its class has."""
        if member.default_factory is not MISSING:
            return member.default_factory()
        return member.default if member.init or slots else MISSING

    def _compiled_init(cls, frozen, slots):
        """That of a class of the standard library with the same fields."""
        members = fields(cls)
        content = {
            each.name: field(
                default=each.default,
                default_factory=each.default_factory,
                init=each.init,
                kw_only=each.kw_only,
            )
            for each in members
        }
        content["__annotations__"] = {each.name: object for each in members}
        if hasattr(cls, "__post_init__"):
            content["__post_init__"] = cls.__post_init__
        twin = type(cls.__name__, (), {"__doc__": cls.__doc__ or cls.__name__, **content})
        init = _dataclass(repr=False, eq=False, frozen=frozen, slots=slots)(twin).__init__
        init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
        return init

    def _values(names):
        """A function that takes the values of attributes of an object, as a tuple."""
        names = tuple(names)
        if not names:
            return lambda _: ()
        values = attrgetter(*names)
        return values if len(names) > 1 else lambda self: (values(self),)

    def _eq_of(values):
        def equal(self, other):
            if other.__class__ is self.__class__:
                return values(self) == values(other)
            return NotImplemented

        return equal

    def _hash_of(values):
        def hashed(self):
            return hash(values(self))

        return hashed

    def _repr_of(names):
        @recursive_repr()
        def shown(self):
            shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
            return f"{self.__class__.__qualname__}({shown})"

        return shown

    def _frozen(cls, names):
        def assign(self, name, value):
            if type(self) is cls or name in names:
                raise FrozenInstanceError(f"cannot assign to field {name!r}")
            super(cls, self).__setattr__(name, value)

        def delete(self, name):
            if type(self) is cls or name in names:
                raise FrozenInstanceError(f"cannot delete field {name!r}")
            super(cls, self).__delattr__(name)

        return assign, delete

    def _state(self):
        return [getattr(self, each.name) for each in fields(self)]

    def _with_state(self, state):
        for each, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, each.name, value)
