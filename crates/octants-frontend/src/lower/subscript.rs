//! `x[...]`: elements of arrays and fields, components of vectors and matrices, slices, and indexing at compile time.

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{BinaryOp, BufferId, Layout, MemorySpace, Op, Scalar, Type, ValueId};

use super::Lowerer;
use crate::arith;
use crate::arith::type_name;
use crate::value::{Members, Place, Value};
use crate::world::Entity;

impl Lowerer<'_> {
    pub(super) fn subscript(&mut self, base: &Value, index: Vec<Value>) -> Result<Value> {
        // Indexing by a tuple is indexing by its items.
        let index = match &index[..] {
            [Value::Tuple(items)] if !matches!(base, Value::Dict(_)) => items.to_vec(),
            _ => index,
        };
        let index: Vec<Value> = index.into_iter().map(|i| self.plain(i)).collect();
        if let Some(m) = self.as_members(base)
            && m.is_array
        {
            let items = m
                .items
                .iter()
                .map(|(n, v)| Ok((n.clone(), self.subscript(v, index.clone())?)))
                .collect::<Result<Vec<_>>>()?;
            return Ok(Value::Members(std::rc::Rc::new(Members { ty: m.ty, is_array: false, items })));
        }
        if let [Value::Str(name)] = &index[..]
            && (matches!(base, Value::Members(_)) || matches!(self.runtime_type(base), Some(Type::Struct(_))))
        {
            return self.attribute(base, name);
        }
        if let ([Value::Slice(parts)], Some(view)) = (&index[..], self.as_view(base)) {
            return self.slice_of_view(&view, parts);
        }
        if let Some(view) = self.as_checked_view(base) {
            return self.view_element(&view, &index);
        }
        if let Value::Neighbors(neighbors) = base {
            return self.neighbor(neighbors, &index);
        }
        if let Some((field, index)) = self.index_in_memory(base, &index)? {
            return self.subscript(&field, index);
        }
        if let Some(buffer) = self.as_array(base)? {
            if index.iter().any(|i| matches!(i, Value::Slice(_))) {
                return self.array_slice(buffer, &index);
            }
            self.refuse_negative_index(buffer, &index)?;
            return self.element(buffer, &index);
        }
        // `t[:]` of a tile is the tile.
        if let [Value::Slice(parts)] = &index[..]
            && matches!(**parts, [Value::None, Value::None, Value::None])
            && self.is_tile(base)?
        {
            return Ok(base.clone());
        }
        if self.adding_method(base)?.is_some() {
            let text =
                "a sparse matrix builder has no elements to read or assign: add to them by `builder[i, j] += value`";
            return self.err(Code::Syntax, text);
        }
        if let Some(item) = self.item_by_method(base, &index)? {
            return Ok(item);
        }
        match base {
            Value::Str(_) => self.character(base, &index),
            Value::Tuple(items) | Value::List(items) | Value::Static(items) => self.sequence_item(items, base, &index),
            Value::Range(_) if base.is_compile_time() => {
                let items = self.compile_time_items(base)?;
                self.sequence_item(&items, base, &index)
            }
            Value::Dict(items) => {
                let [key] = &index[..] else { return self.err(Code::Index, "a subscript of a dict takes one key") };
                match self.position_of_key(items, key)? {
                    Some(i) => Ok(items[i].1.clone()),
                    None if !key.is_compile_time() => {
                        self.err(Code::Type, "a dict can only be indexed by a key that is known at compile time")
                    }
                    None => self.err(Code::Index, "this key is not in the dict"),
                }
            }
            Value::Obj(obj) if !matches!(self.world.entity(*obj), Entity::TensorConst { .. }) => {
                let key = match &index[..] {
                    [one] => self.to_host(one),
                    many => self.to_host(&Value::tuple(many.to_vec())),
                };
                let Some(key) = key else {
                    let what = self.describe(base);
                    return self.err(Code::Type, format!("{what} can only be indexed by values known at compile time"));
                };
                // A launch finds arrays only through attributes; an item must be the one that was compiled in.
                let found = self.world.subscript(*obj, key).map_err(|e| self.host_error(e))?;
                Ok(self.lift(found))
            }
            _ => {
                if let Some(v) = self.constant_component(base, &index) {
                    return Ok(v);
                }
                self.component(base, &index)
            }
        }
    }

    /// A component of a constant vector or matrix at constant indices stays a compile-time value.
    fn constant_component(&mut self, base: &Value, index: &[Value]) -> Option<Value> {
        let Value::Obj(obj) = base else { return None };
        let Entity::TensorConst { ty, values, .. } = self.world.entity(*obj) else { return None };
        let shape = ty.shape();
        if index.len() != shape.len() {
            return None;
        }
        let mut at = 0;
        for (v, n) in index.iter().zip(&shape) {
            let Value::Int(i) = v else { return None };
            let i = if *i < 0 { *i + i128::from(*n) } else { *i };
            if i < 0 || i >= i128::from(*n) {
                return None;
            }
            at = at * *n as usize + i as usize;
        }
        match values.get(at)? {
            Entity::Int(i) => Some(Value::Int(*i)),
            Entity::Float(f) => Some(Value::Float(*f)),
            Entity::Bool(b) => Some(Value::Bool(*b)),
            _ => None,
        }
    }

    /// The character of a compile-time string at an index.
    fn character(&mut self, base: &Value, index: &[Value]) -> Result<Value> {
        let key = match index {
            [one] => self.to_host(one),
            _ => None,
        };
        let (Some(text), Some(key)) = (self.to_host(base), key) else {
            return self.err(Code::Type, "a string can only be indexed by one value known at compile time");
        };
        let found = self.world.subscript(text, key).map_err(|e| self.host_error(e))?;
        Ok(self.lift(found))
    }

    fn sequence_item(&mut self, items: &[Value], base: &Value, index: &[Value]) -> Result<Value> {
        self.check_unpacked_index(items, base, index)?;
        match index {
            // A truth value is 0 or 1, as in Python.
            [Value::Bool(b)] => self.sequence_item(items, base, &[Value::Int(i128::from(*b))]),
            [Value::Int(i)] => {
                let n = items.len() as i128;
                let at = if *i < 0 { *i + n } else { *i };
                if at < 0 || at >= n {
                    return self.err(Code::Index, format!("list index out of range: {i} of {n} items"));
                }
                Ok(items[at as usize].clone())
            }
            [Value::Slice(_)] => {
                let picked =
                    self.slice_positions(&index[0], items.len())?.into_iter().map(|i| items[i].clone()).collect();
                Ok(if matches!(base, Value::Tuple(_)) { Value::tuple(picked) } else { Value::list(picked) })
            }
            [first, rest @ ..] if !rest.is_empty() => {
                let inner = self.sequence_item(items, base, std::slice::from_ref(first))?;
                self.subscript(&inner, rest.to_vec())
            }
            [_] => {
                // A run-time index: the items become a vector.
                let v = self.make_tensor(items, None)?;
                self.component(&Value::Rt(v), index)
            }
            _ => self.err(Code::Index, "a subscript needs at least one index"),
        }
    }

    /// The components of a vector that was declared with `unpacked=True` are named by numbers known at compile time.
    fn check_unpacked_index(&self, items: &[Value], base: &Value, index: &[Value]) -> Result<()> {
        let Value::List(list) = base else { return Ok(()) };
        let Some((_, name)) = self.unpacked_vectors.iter().find(|(known, _)| std::rc::Rc::ptr_eq(known, list)) else {
            return Ok(());
        };
        let n = items.len();
        let message = match index {
            [Value::Int(i)] if (0..n as i128).contains(i) => return Ok(()),
            [Value::Int(i)] => format!("unpacked vector index out of bounds: {name}[{i}] (count={n})"),
            _ => format!(
                "unpacked vector {name}[i] requires a python-int index known at compile time, e.g. from qd.static"
            ),
        };
        Err(Diagnostic::new(Code::Syntax, self.b.span, message)
            .with_hint("remove `unpacked=True` if the vector is indexed at run time"))
    }

    fn slice_positions(&mut self, slice: &Value, len: usize) -> Result<Vec<usize>> {
        let Value::Slice(parts) = slice else { return self.err(Code::Index, "not a slice") };
        let part = |v: &Value| match v {
            Value::None => Ok(None),
            Value::Int(i) => Ok(Some(*i as i64)),
            _ => self.err(
                Code::Type,
                "the bounds of a slice must be known at compile time: variables in slice are not supported",
            ),
        };
        let (a, b, c) = (part(&parts[0])?, part(&parts[1])?, part(&parts[2])?);
        let step = c.unwrap_or(1);
        if step == 0 {
            return self.err(Code::Value, "slice step cannot be zero");
        }
        let n = len as i64;
        let clamp = |v: i64, lo: i64, hi: i64| (if v < 0 { v + n } else { v }).clamp(lo, hi);
        let mut out = Vec::new();
        if step > 0 {
            let (mut i, end) = (clamp(a.unwrap_or(0), 0, n), clamp(b.unwrap_or(n), 0, n));
            while i < end {
                out.push(i as usize);
                i += step;
            }
        } else {
            let mut i = a.map_or(n - 1, |v| clamp(v, -1, n - 1));
            let end = b.map_or(-1, |v| clamp(v, -1, n - 1));
            while i > end {
                out.push(i as usize);
                i += step;
            }
        }
        Ok(out)
    }

    /// Indices as integers: a vector expands to its components, `None` to no index.
    fn flatten_indices(&mut self, index: &[Value]) -> Result<Vec<ValueId>> {
        let mut out = Vec::new();
        for v in index {
            match v {
                Value::None => {}
                Value::List(items) | Value::Tuple(items) => out.extend(self.flatten_indices(items)?),
                Value::Slice(_) => return self.err(Code::Index, "arrays and fields cannot be sliced in a kernel"),
                Value::Float(_) => return self.bad_index(Scalar::F32),
                v => {
                    let rt = self.rt(v)?;
                    match *self.b.ty(rt) {
                        Type::Scalar(s) if s.is_int() => out.push(rt),
                        Type::Vector(s, n) if s.is_int() => {
                            for i in 0..n {
                                let x = self.b.extract(rt, i);
                                out.push(x);
                            }
                        }
                        Type::Scalar(s) | Type::Vector(s, _) => return self.bad_index(s),
                        _ => {
                            let ty = type_name(self.b.ty(rt));
                            return self.err(Code::Type, format!("an index must be an integer, not {ty}"));
                        }
                    }
                }
            }
        }
        Ok(out)
    }

    /// An index of an array that is known to be negative. The axes of a field may begin below 0.
    fn refuse_negative_index(&self, buffer: BufferId, index: &[Value]) -> Result<()> {
        let is_field = matches!(self.buffers[buffer.index()].layout, Layout::Dense { .. });
        if is_field || self.clamped_arrays.contains(&buffer) || !index.iter().any(is_negative) {
            return Ok(());
        }
        Err(Diagnostic::new(Code::Syntax, self.b.span, "Negative indices are not supported in Quadrants kernels.")
            .with_hint("count from the end with the shape: `x[x.shape[0] - 1]`"))
    }

    fn bad_index<T>(&mut self, s: Scalar) -> Result<T> {
        Err(Diagnostic::new(Code::Type, self.b.span, format!("indices must be integers, however '{s}' is provided"))
            .with_hint("convert it: `int(x)`"))
    }

    /// Address of an array's element.
    pub(super) fn element(&mut self, buffer: BufferId, index: &[Value]) -> Result<Value> {
        let mut indices = self.flatten_indices(index)?;
        if self.clamped_arrays.contains(&buffer) {
            self.clamp_to_array(buffer, &mut indices);
        }
        let decl = &self.buffers[buffer.index()];
        let ndim = decl.ndim as usize;
        let elem = decl.elem.clone();
        let name = decl.name.clone();
        let ty = Type::Ref(Box::new(elem.clone()));
        if indices.len() == ndim {
            let addr = self.b.push(Op::BufferAddr(buffer, indices), ty);
            return Ok(Value::global(addr));
        }
        // In shared memory, `s[i, k]` may name a component.
        if self.buffers[buffer.index()].space == MemorySpace::Shared && indices.len() == ndim + elem.shape().len() {
            let addr = self.b.push(Op::BufferAddr(buffer, indices[..ndim].to_vec()), ty);
            return Ok(Value::global(self.b.element_addr(addr, indices[ndim..].to_vec())));
        }
        let is_field = matches!(self.buffers[buffer.index()].layout, Layout::Dense { .. });
        let kind = if is_field { "Field" } else { "Array" };
        let shown = if name.is_empty() { String::from("the field") } else { format!("`{name}`") };
        Err(Diagnostic::new(
            Code::Index,
            self.b.span,
            format!(
                "{kind} with dim {ndim} accessed with indices of dim {}: {shown} takes {ndim} indices",
                indices.len()
            ),
        )
        .with_hint(match ndim {
            0 => "write `x[None]`".into(),
            _ if indices.len() == ndim + elem.shape().len() => {
                format!("give {ndim} indices; component indices follow in separate brackets: `x[i][0]`")
            }
            _ => format!("give {ndim} indices"),
        }))
    }

    /// Moves indices that are outside an array to its border. Those of components are left to `clamp_components`.
    fn clamp_to_array(&mut self, buffer: BufferId, indices: &mut [ValueId]) {
        let ndim = self.buffers[buffer.index()].ndim as usize;
        for (axis, index) in indices.iter_mut().enumerate().take(ndim) {
            let Value::Rt(extent) = self.extent(buffer, axis as u32) else {
                panic!("compiler bug: the extents of an array are known at launch only");
            };
            *index = self.clamp_index(*index, extent);
        }
    }

    /// The position of a component, row by row, moved to the nearest one that the element has, as indices.
    fn clamp_components(&mut self, shape: &[u32], indices: &[ValueId]) -> Vec<ValueId> {
        let int = |s: &mut Self, n: u32| s.b.int(n.into(), Scalar::I64);
        let mut position = int(self, 0);
        for (&index, &n) in indices.iter().zip(shape) {
            let (index, n) = (self.b.cast(index, Scalar::I64), int(self, n));
            position = self.b.binary(BinaryOp::Mul, position, n);
            position = self.b.binary(BinaryOp::Add, position, index);
        }
        let count = int(self, shape.iter().product());
        let position = self.clamp_index(position, count);
        match *shape {
            [_, m] => {
                let m = int(self, m);
                [BinaryOp::Div, BinaryOp::Rem].map(|op| self.b.binary(op, position, m)).to_vec()
            }
            _ => vec![position],
        }
    }

    fn clamp_index(&mut self, index: ValueId, extent: ValueId) -> ValueId {
        let narrow = |s: Option<Scalar>| s.is_some_and(|s| s.bits() < 32 || s == Scalar::I32);
        let s = if narrow(self.b.ty(index).scalar()) && narrow(self.b.ty(extent).scalar()) {
            Scalar::I32
        } else {
            Scalar::I64
        };
        let (index, extent) = (self.b.cast(index, s), self.b.cast(extent, s));
        let (zero, one) = (self.b.int(0, s), self.b.int(1, s));
        let last = self.b.binary(BinaryOp::Sub, extent, one);
        let index = self.b.binary(BinaryOp::Min, index, last);
        self.b.binary(BinaryOp::Max, index, zero)
    }

    /// The place is an element of an array with `boundary="clamp"`.
    fn is_clamped(&self, addr: ValueId) -> bool {
        matches!(self.b.body.inst(addr).op, Op::BufferAddr(b, _) if self.clamped_arrays.contains(&b))
    }

    /// A component, row or slice of a vector or matrix.
    fn component(&mut self, base: &Value, index: &[Value]) -> Result<Value> {
        let Some(ty) =
            self.runtime_type(base).or_else(|| self.try_rt(base).ok().flatten().map(|v| self.b.ty(v).clone()))
        else {
            let what = self.describe(base);
            return self.err(Code::Type, format!("{what} cannot be indexed"));
        };
        let shape = ty.shape();
        let Some(scalar) = ty.scalar().filter(|_| !shape.is_empty()) else {
            return self.err(Code::Type, format!("a value of type {ty} cannot be indexed", ty = type_name(&ty)));
        };
        // `v[I]` with a vector of indices.
        let index: Vec<Value> = match index {
            [one] if matches!(self.runtime_type(one), Some(Type::Vector(..))) => self.unpack(one)?,
            _ => index.to_vec(),
        };
        if index.iter().any(|i| matches!(i, Value::Slice(_))) || (shape.len() == 2 && index.len() == 1) {
            return self.sub_tensor(base, &shape, scalar, &index);
        }
        if index.len() != shape.len() {
            return self.err(
                Code::Index,
                format!("Expected {} indices, got {}: the value is {}", shape.len(), index.len(), type_name(&ty)),
            );
        }
        let mut index = index;
        let mut fixed = Some(0u32);
        for (v, n) in index.iter_mut().zip(&shape) {
            if let Value::Int(i) = v {
                if self.never_runs && !(0..i128::from(*n)).contains(i) {
                    *i = 0;
                }
                if *i < 0 {
                    return Err(Diagnostic::new(
                        Code::Syntax,
                        self.b.span,
                        "Negative indices are not supported in Quadrants kernels.",
                    )
                    .with_hint(format!("the last of the {n} components has index {}", n - 1)));
                }
                let at = *i;
                if at >= i128::from(*n) {
                    return self.err(
                        Code::Index,
                        format!(
                            "index {i} is out of bounds for an axis of {n} components of {ty}",
                            ty = type_name(&ty)
                        ),
                    );
                }
                fixed = fixed.map(|f| f * n + at as u32);
            } else {
                fixed = None;
            }
        }
        if let Some(place) = self.place(base) {
            let indices = index
                .iter()
                .map(|v| match v {
                    Value::Int(i) => Ok(self.b.int(*i as i64, Scalar::I32)),
                    v => self.index_value(v),
                })
                .collect::<Result<Vec<_>>>()?;
            let clamps = fixed.is_none() && self.is_clamped(place.addr);
            let indices = if clamps { self.clamp_components(&shape, &indices) } else { indices };
            let addr = self.b.element_addr(place.addr, indices);
            return Ok(Value::Place(Place { addr, global: place.global }));
        }
        let v = self.rt(base)?;
        if let Some(i) = fixed {
            return Ok(Value::Rt(self.b.extract(v, i)));
        }
        let indices = index.iter().map(|i| self.index_value(i)).collect::<Result<Vec<_>>>()?;
        Ok(Value::Rt(self.b.push(Op::ExtractDyn(v, indices), Type::Scalar(scalar))))
    }

    pub(super) fn index_value(&mut self, v: &Value) -> Result<ValueId> {
        let v = self.rt(v)?;
        match *self.b.ty(v) {
            Type::Scalar(s) if s.is_int() => Ok(v),
            Type::Scalar(s) => self.bad_index(s),
            _ => {
                let ty = type_name(self.b.ty(v));
                self.err(Code::Type, format!("an index must be an integer, not {ty}"))
            }
        }
    }

    /// Slices as values: `v[1:3]`, `m[0, :]`, `m[i]`.
    fn sub_tensor(&mut self, base: &Value, shape: &[u32], scalar: Scalar, index: &[Value]) -> Result<Value> {
        let (parts, extents) = self.sliced_components(base, shape, index)?;
        let items = parts.iter().map(|p| self.rt(p)).collect::<Result<Vec<_>>>()?;
        Ok(Value::Rt(self.b.push(Op::MakeTensor(items), Type::tensor(scalar, &extents))))
    }

    /// The places that a slice of a variable or element names, for assignment; nested lists for two axes. `None` when
    /// the index names one component.
    pub(super) fn slice_places(&mut self, base: &Value, index: &[Value]) -> Result<Option<Value>> {
        if self.place(base).is_none() {
            return Ok(None);
        }
        let shape = self.runtime_type(base).map(|t| t.shape()).unwrap_or_default();
        let index = match index {
            [Value::Tuple(items)] => items.to_vec(),
            _ => index.to_vec(),
        };
        let is_slice = index.iter().any(|i| matches!(i, Value::Slice(_)));
        let is_row =
            shape.len() == 2 && index.len() == 1 && !matches!(self.runtime_type(&index[0]), Some(Type::Vector(..)));
        if shape.is_empty() || !(is_slice || is_row) {
            return Ok(None);
        }
        let (places, extents) = self.sliced_components(base, &shape, &index)?;
        Ok(Some(match extents[..] {
            [_, m] => Value::list(places.chunks(m as usize).map(|row| Value::list(row.to_vec())).collect()),
            _ => Value::list(places),
        }))
    }

    /// The components that a slice picks, row-major, and its shape.
    fn sliced_components(&mut self, base: &Value, shape: &[u32], index: &[Value]) -> Result<(Vec<Value>, Vec<u32>)> {
        let full = Value::Slice(std::rc::Rc::new([Value::None, Value::None, Value::None]));
        let mut index = index.to_vec();
        while index.len() < shape.len() {
            index.push(full.clone());
        }
        if index.len() > shape.len() {
            return self.err(
                Code::Index,
                format!("too many indices: {} for a value with {} dimensions", index.len(), shape.len()),
            );
        }
        let mut axes: Vec<Vec<Value>> = Vec::new();
        let mut extents = Vec::new();
        for (v, n) in index.iter().zip(shape) {
            match v {
                Value::Slice(_) => {
                    let picked = self.slice_positions(v, *n as usize)?;
                    extents.push(picked.len() as u32);
                    axes.push(picked.into_iter().map(|i| Value::Int(i as i128)).collect());
                }
                v => axes.push(vec![v.clone()]),
            }
        }
        if extents.contains(&0) {
            return self.err(Code::Index, "this slice is empty");
        }
        let mut places = Vec::new();
        let mut all = vec![Vec::new()];
        for axis in &axes {
            all = all
                .iter()
                .flat_map(|p: &Vec<Value>| axis.iter().map(|v| [&p[..], std::slice::from_ref(v)].concat()))
                .collect();
        }
        for p in all {
            places.push(self.component(base, &p)?);
        }
        Ok((places, extents))
    }

    /// A scalar converted to `s`.
    pub(super) fn cast_value(&mut self, v: &Value, s: Scalar) -> Result<ValueId> {
        if let Value::Int(i) = v {
            if s.is_float() {
                return Ok(self.b.float(*i as f64, s));
            }
            if s != Scalar::U1 {
                return Ok(self.b.int(super::assignment::wrap(*i as i64, s), s));
            }
        }
        if let (Value::Float(f), true) = (v, s.is_float()) {
            return Ok(self.b.float(*f, s));
        }
        let v = match v.items() {
            Some(items) => self.make_tensor(items, None)?,
            None => self.rt(v)?,
        };
        arith::cast(&mut self.b, v, s)
    }
}

fn is_negative(index: &Value) -> bool {
    match index {
        Value::Int(i) => *i < 0,
        Value::Tuple(items) | Value::List(items) => items.iter().any(is_negative),
        _ => false,
    }
}
