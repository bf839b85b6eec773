"""Names, places and conversions of a function that is compiled to closures."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import scalars
from language import Array, InvalidProgramError, Scope, Struct, Tensor, Type, Value, count_of
from scalars import UnspecifiedError, converter, is_float, wrap

if TYPE_CHECKING:
    from interpreter import Interpreter


class PlaceCompiler:
    """A function that is compiled to closures, called with arguments of certain types."""

    def __init__(self, program: Interpreter, caller: PlaceCompiler | None, is_kernel: bool = False) -> None:
        self.program = program
        self.state = program.state
        self.is_kernel = is_kernel
        self.slots = 0
        self.scopes: list[Scope] = [Scope()]
        self.returns: Type | None = None
        self.loops: list[str] = []
        self.outer_slots: set[int] = set()
        """Variables of a kernel that iterations of the parallel loop share."""
        self.static_values: dict[str, Any] = {}
        self.depth = 0 if caller is None else caller.depth + 1
        self.at_top = is_kernel
        if self.depth > 8:
            raise InvalidProgramError("recursion")
        self.pending_serialize = False
        self.takes_tickets = False
        """The expression may name old values that iterations get in any order."""

    # Names.

    def slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def variable(self, name: str, t: Type, is_fixed: bool = False) -> int:
        slot = self.slot()
        self.scopes[-1].names[name] = ("variable", slot, t, is_fixed)
        return slot

    def lookup(self, name: str) -> Any:
        for scope in reversed(self.scopes):
            if name in scope.names:
                return scope.names[name]
        return None

    def variable_value(self, slot: int, t: Type) -> Value:
        shared = slot in self.outer_slots
        if isinstance(t, str) and not shared:
            return Value(t, lambda f: f[slot], locate=lambda f: (f, slot, False))
        if isinstance(t, str):
            races = self.program.races

            def get(f):
                races.read(f, slot, 1)
                return f[slot]

            return Value(t, get, locate=lambda f: (f, slot, True))
        if shared:
            count = count_of(t)
            races = self.program.races

            def get_all(f):
                races.read(f[slot], 0, count)
                return list(f[slot])

            return Value(t, get_all, locate=lambda f: (f[slot], 0, True))
        return Value(t, lambda f: list(f[slot]), locate=lambda f: (f[slot], 0, False))

    # Places.

    def read_place(self, t: Type, locate: Callable, is_global: bool) -> Value:
        races, state, count = self.program.races, self.state, count_of(t)
        if isinstance(t, str):

            def get(f):
                numbers, at, shared = locate(f)
                if shared and state.iteration is not None:
                    races.read(numbers, at, 1)
                return numbers[at]

            return Value(t, get, locate=locate, is_global=is_global)

        def get_all(f):
            numbers, at, shared = locate(f)
            if shared and state.iteration is not None:
                races.read(numbers, at, count)
            return numbers[at : at + count]

        return Value(t, get_all, locate=locate, is_global=is_global)

    def writer(self, place: Value) -> Callable[[list, Any], None]:
        if place.locate is None:
            raise InvalidProgramError("an assignment to what is no place")
        locate, t, races, state, count = place.locate, place.type, self.program.races, self.state, count_of(place.type)
        if isinstance(t, str):

            def put(f, v):
                numbers, at, shared = locate(f)
                if shared and state.iteration is not None:
                    races.write(numbers, at, [v])
                numbers[at] = v

            return put

        def put_all(f, v):
            numbers, at, shared = locate(f)
            if shared and state.iteration is not None:
                races.write(numbers, at, v)
            numbers[at : at + count] = v

        return put_all

    def element(self, array: Array, indices: list[Value]) -> Value:
        if len(indices) == 1 and isinstance(indices[0].type, Tensor):
            vector = indices[0]
            if len(array.shape) != vector.type.count:
                raise InvalidProgramError("number of indices")
            at = vector.get
        elif len(indices) != len(array.shape) and not (array.shape == () and len(indices) == 1):
            raise InvalidProgramError("number of indices")
        elif array.shape == ():
            at = lambda f: ()
        else:
            for i in indices:
                if not isinstance(i.type, str) or is_float(i.type):
                    raise InvalidProgramError("an index that is no integer")
            gets = [i.get for i in indices]
            at = lambda f: [g(f) for g in gets]
        shape, strides, offset = array.shape, array.strides, array.offset
        first = array.first or (0,) * len(shape)
        numbers = array.storage.numbers

        def locate(f):
            position = offset
            for i, n, stride, least in zip(at(f), shape, strides, first, strict=True):
                i -= least
                if not 0 <= i < n:
                    raise UnspecifiedError(f"index {i} of {n}")
                position += i * stride
            return numbers, position, True

        return self.read_place(array.element, locate, is_global=True)

    def component(self, base: Value, indices: list[Value]) -> Value:
        t = base.type
        if not isinstance(t, Tensor) or len(indices) != len(t.shape):
            raise InvalidProgramError("a component of what is no tensor")
        for i in indices:
            if not isinstance(i.type, str) or is_float(i.type):
                raise InvalidProgramError("an index that is no integer")
        gets, shape = [i.get for i in indices], t.shape

        def position(f):
            at = 0
            for g, n in zip(gets, shape, strict=True):
                i = g(f)
                if not 0 <= i < n:
                    raise UnspecifiedError(f"component {i} of {n}")
                at = at * n + i
            return at

        return self.part(base, t.scalar, position)

    def part(self, base: Value, t: Type, position: Callable[[list], int]) -> Value:
        """A part of a value: a location if the value is one."""
        count = count_of(t)
        if base.locate is None:
            get = base.get
            if isinstance(t, str):
                return Value(t, lambda f: get(f)[position(f)])

            def cut(f):
                at = position(f)
                return get(f)[at : at + count]

            return Value(t, cut)
        outer = base.locate

        def locate(f):
            numbers, at, shared = outer(f)
            return numbers, at + position(f), shared

        return self.read_place(t, locate, base.is_global)

    def member(self, base: Value, name: str) -> Value:
        t = base.type
        if isinstance(t, Struct):
            at = 0
            for member, mt in t.members:
                if member == name:
                    return self.part(base, mt, lambda f, at=at: at)
                at += count_of(mt)
        if isinstance(t, Tensor) and len(t.shape) == 1 and name in ("x", "y", "z", "w"):
            i = "xyzw".index(name)
            if i < t.shape[0]:
                return self.part(base, t.scalar, lambda f: i)
        if isinstance(t, Tensor) and len(t.shape) == 1:
            places = self.components_named(name)
            if places and max(places) < t.shape[0]:
                return self.selection(base, (len(places),), places)
        raise InvalidProgramError(f"member {name}")

    @staticmethod
    def components_named(name: str) -> list[int] | None:
        """The components that `zyx` or `rg` name."""
        for letters in ("xyzw", "rgba", "stpq"):
            if set(name) <= set(letters) and len(name) <= 4:
                return [letters.index(c) for c in name]
        return None

    def selection(self, base: Value, shape: tuple[int, ...], places: list[int]) -> Value:
        """Some components of a tensor, as one location."""
        assert isinstance(base.type, Tensor)
        get, t = base.get, Tensor(base.type.scalar, shape)

        def read(f):
            found = get(f)
            return [found[i] for i in places]

        chosen = Value(t, read)
        if base.locate is not None and len(set(places)) == len(places):
            chosen.selected = (base, places)
        return chosen

    def slices(self, base: Value, parts: list[ast.expr]) -> Value:
        """`v[1:3]` or `m[0, :]`, with constant bounds."""
        t = base.type
        if not isinstance(t, Tensor) or len(parts) != len(t.shape):
            raise InvalidProgramError("a slice of what is no tensor")
        chosen, shape = [], []
        for part, n in zip(parts, t.shape, strict=True):
            if isinstance(part, ast.Slice):
                bounds = [None if b is None else ast.literal_eval(b) for b in (part.lower, part.upper, part.step)]
                along = list(range(n))[slice(*bounds)]
                shape.append(len(along))
            else:
                along = [ast.literal_eval(part)]
                if not 0 <= along[0] < n:
                    raise UnspecifiedError("a component outside")
            chosen.append(along)
        if len(chosen) == 1:
            places = chosen[0]
        else:
            places = [i * t.shape[1] + j for i in chosen[0] for j in chosen[1]]
        if not places:
            raise InvalidProgramError("an empty slice")
        return self.selection(base, tuple(shape), places)

    # Conversions.

    def literal(self, v: Any) -> Value:
        if isinstance(v, bool):
            return Value("u1", lambda f: int(v), literal=v)
        if isinstance(v, int):
            w = wrap(self.program.ip, v)
            return Value(self.program.ip, lambda f: w, literal=v)
        if isinstance(v, float):
            r = scalars.rounder(self.program.fp)(v)
            return Value(self.program.fp, lambda f: r, literal=v)
        raise InvalidProgramError(f"literal {v!r}")

    def plain(self, v: Value) -> Value:
        """The value in its own type, even if it is a literal."""
        if (
            isinstance(v.literal, int)
            and not isinstance(v.literal, bool)
            and wrap(self.program.ip, v.literal) != v.literal
        ):
            raise InvalidProgramError("a literal that its type does not hold")
        return Value(v.type, v.get)

    def converted(self, v: Value, to: Type) -> Callable[[list], Any]:
        """The value, converted for a store to memory of type `to`."""
        if isinstance(to, str):
            if not isinstance(v.type, str):
                raise InvalidProgramError("a tensor where a number is wanted")
            if v.literal is not None and not isinstance(v.literal, bool):
                # A literal takes the type of its destination.
                exact = v.literal
                kind = "f64" if isinstance(exact, float) else None
                if kind is None and not is_float(to):
                    number = int(exact != 0) if to == "u1" else wrap(to, exact)
                    return lambda f: number
                if is_float(to):
                    rounded = scalars.checked(self.state, to)(float(exact))
                    return lambda f: rounded
            convert, get = converter(self.state, v.type, to), v.get
            return get if convert is None else lambda f: convert(get(f))
        if isinstance(to, Tensor):
            count = to.count
            if isinstance(v.type, str):
                one = self.converted(v, to.scalar)
                return lambda f: [one(f)] * count
            if not isinstance(v.type, Tensor) or v.type.shape != to.shape:
                raise InvalidProgramError("shapes differ")
            convert, get = converter(self.state, v.type.scalar, to.scalar), v.get
            return get if convert is None else lambda f: [convert(x) for x in get(f)]
        if v.type != to:
            raise InvalidProgramError("a struct of another type")
        return v.get

    def cast(self, v: Value, to: str) -> Value:
        t = v.type
        if v.literal is not None and not isinstance(v.literal, bool):
            return Value(to, self.converted(v, to))
        if isinstance(t, Tensor):
            target: Type = Tensor(to, t.shape)
        elif isinstance(t, str):
            target = to
        else:
            raise InvalidProgramError("a cast of a struct")
        return Value(target, self.converted(v, target))

    def condition(self, v: Value) -> Callable[[list], Any]:
        if not isinstance(v.type, str) or is_float(v.type):
            raise InvalidProgramError("a condition that is no integer")
        return v.get

    def componentwise(self, operands: list[Value], to: list[str], result: str, function: Callable) -> Value:
        """Applies a function of numbers to operands converted to scalar types, component by component."""
        operands = [self.plain(v) for v in operands]
        shapes = {v.type.shape for v in operands if isinstance(v.type, Tensor)}
        if len(shapes) > 1 or any(isinstance(v.type, Struct) for v in operands):
            raise InvalidProgramError("shapes differ")
        if not shapes:
            gets = []
            for v, t in zip(operands, to, strict=True):
                convert, get = converter(self.state, v.type, t), v.get
                gets.append(get if convert is None else lambda f, c=convert, g=get: c(g(f)))
            if len(gets) == 1:
                (a,) = gets
                return Value(result, lambda f: function(a(f)))
            if len(gets) == 2:
                a, b = gets
                return Value(result, lambda f: function(a(f), b(f)))
            return Value(result, lambda f: function(*[g(f) for g in gets]))
        (shape,) = shapes
        gets = [self.converted(self.plain(v), Tensor(t, shape)) for v, t in zip(operands, to, strict=True)]
        return Value(Tensor(result, shape), lambda f: [function(*xs) for xs in zip(*[g(f) for g in gets], strict=True)])

    def scalar_of(self, v: Value) -> str:
        if isinstance(v.type, Struct):
            raise InvalidProgramError("a struct as an operand")
        return v.type if isinstance(v.type, str) else v.type.scalar
