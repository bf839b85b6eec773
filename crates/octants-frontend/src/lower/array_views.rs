//! Ranges of an array in a kernel: `v[2:4]` and `v.subview(offset, size)` of a one-dimensional array argument.
//!
//! A view consists of the array, an offset and a size. It has no memory of its own and is decomposed at each use, so
//! functions that take one are inlined. A view passed as a kernel argument is an array of its own; its base array and
//! first element are read from the argument when the kernel asks for them.

use std::rc::Rc;

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{BinaryOp, BufferId, Layout, Op, Scalar, TextPart, Type, ValueId};

use super::Lowerer;
use super::builtins::Call;
use crate::arith::type_name;
use crate::value::{ArrayView, Value};

/// The kind of the sliced array, for the message of debug mode.
#[derive(Clone, Copy)]
enum PartOf {
    Array,
    View,
}

impl Lowerer<'_> {
    /// The array, or part of an array, to take a view of.
    pub(super) fn as_view(&mut self, base: &Value) -> Option<ArrayView> {
        match base {
            Value::View(view) => Some((**view).clone()),
            Value::Array(array) => {
                let decl = &self.buffers[array.index()];
                let is_argument = decl.ndim == 1 && !matches!(decl.layout, Layout::Dense { .. });
                is_argument.then_some(ArrayView { array: *array, offset: None, size: None })
            }
            _ => None,
        }
    }

    /// `qd.BufferView(array, offset, size)`.
    pub(super) fn lower_buffer_view(&mut self, call: Call) -> Result<Value> {
        let mut args = call.args;
        let named = call.kwargs.iter().position(|(name, _)| name == "ndarray" || name == "arr");
        let array = match named {
            Some(at) if args.is_empty() => call.kwargs[at].1.clone(),
            None if !args.is_empty() => args.remove(0),
            _ => return self.err(Code::Type, "`qd.BufferView` takes an array, `offset` and `size`"),
        };
        if matches!(array, Value::View(_)) {
            return self.err(Code::Type, "Cannot nest BufferView(view, ...); use view.subview(offset, size) instead");
        }
        let Some(view) = self.as_view(&array) else {
            let what = self.describe(&array);
            return self.err(Code::Type, format!("`qd.BufferView` takes a one-dimensional array, not {what}"));
        };
        self.lower_range_of(&view, &args, &call.kwargs, PartOf::Array)
    }

    /// `view.subview(offset, size)`.
    pub(super) fn lower_subview(
        &mut self,
        view: &ArrayView,
        args: &[Value],
        kwargs: &[(String, Value)],
    ) -> Result<Value> {
        self.lower_range_of(view, args, kwargs, PartOf::View)
    }

    fn lower_range_of(
        &mut self,
        view: &ArrayView,
        args: &[Value],
        kwargs: &[(String, Value)],
        around: PartOf,
    ) -> Result<Value> {
        let given = |at: usize, name: &str| {
            args.get(at).or_else(|| kwargs.iter().find(|(k, _)| k == name).map(|(_, v)| v)).cloned()
        };
        let (Some(offset), Some(size)) = (given(0, "offset"), given(1, "size")) else {
            return self.err(Code::Type, "`subview` takes `offset` and `size`");
        };
        let (offset, size) = (self.view_bound(&offset)?, self.view_bound(&size)?);
        self.narrowed(view, offset, size, around)
    }

    /// `view[begin:end]`.
    pub(super) fn slice_of_view(&mut self, view: &ArrayView, parts: &[Value; 3]) -> Result<Value> {
        let [begin, end, step] = parts;
        if !matches!(step, Value::None | Value::Int(1)) {
            let shown = match step {
                Value::Int(n) => format!("step={n}"),
                _ => String::from("a run-time step"),
            };
            let message = format!("BufferView slice does not support an explicit step in kernels: {shown}");
            return self.err(Code::Syntax, message);
        }
        let begin = match begin {
            Value::None => self.b.int(0, Scalar::I32),
            begin => self.view_bound(begin)?,
        };
        let end = match end {
            Value::None => self.view_size(view),
            end => self.view_bound(end)?,
        };
        let size = self.difference(end, begin);
        self.narrowed(view, begin, size, PartOf::View)
    }

    fn narrowed(&mut self, view: &ArrayView, offset: ValueId, size: ValueId, around: PartOf) -> Result<Value> {
        if self.options.debug {
            let (outer, zero) = (self.view_size(view), self.b.int(0, Scalar::I32));
            let end = self.sum(offset, size);
            let tests = [(BinaryOp::Le, zero, offset), (BinaryOp::Le, zero, size), (BinaryOp::Le, end, outer)];
            let (mut parts, names) = match around {
                PartOf::Array => {
                    (vec![TextPart::Text("BufferView construction out of range: ".into())], ["", "ndarray length"])
                }
                PartOf::View => {
                    (self.place_of_access("BufferView subview Out Of Range: "), ["subview ", "parent size"])
                }
            };
            let [what, length] = names;
            parts.extend([
                TextPart::Text(format!("{what}offset=")),
                TextPart::Value(offset, None),
                TextPart::Text(format!(", {what}size=")),
                TextPart::Value(size, None),
                TextPart::Text(format!(", {length}=")),
                TextPart::Value(outer, None),
                TextPart::Text(self.call_stack()),
            ]);
            self.assert_all(&tests, parts);
        }
        let offset = match view.offset {
            Some(outer) => self.sum(outer, offset),
            None => offset,
        };
        Ok(Value::View(Rc::new(ArrayView { array: view.array, offset: Some(offset), size: Some(size) })))
    }

    /// The element of a view at an index, which debug mode checks against the size of the view.
    pub(super) fn view_element(&mut self, view: &ArrayView, index: &[Value]) -> Result<Value> {
        let [index] = index else {
            let found = index.len();
            return self.err(Code::Index, format!("Array with dim 1 accessed with indices of dim {found}"));
        };
        let index = self.view_bound(index)?;
        if self.options.debug {
            let (size, zero) = (self.view_size(view), self.b.int(0, Scalar::I32));
            let parts = self.out_of_view(view, index, size)?;
            self.assert_all(&[(BinaryOp::Le, zero, index), (BinaryOp::Lt, index, size)], parts);
        }
        let at = match view.offset {
            Some(offset) => self.sum(offset, index),
            None => index,
        };
        self.element(view.array, &[Value::Rt(at)])
    }

    /// The message about an index outside of a view, with the functions that led to it.
    fn out_of_view(&mut self, view: &ArrayView, index: ValueId, size: ValueId) -> Result<Vec<TextPart>> {
        let mut parts = self.place_of_access("BufferView Out Of Range: ");
        let offset = self.offset_in_whole(view)?;
        let offset = self.rt(&offset)?;
        parts.extend([
            TextPart::Text("got index ".into()),
            TextPart::Value(index, None),
            TextPart::Text(" (offset=".into()),
            TextPart::Value(offset, None),
            TextPart::Text(", size=".into()),
            TextPart::Value(size, None),
            TextPart::Text(format!("){}", self.call_stack())),
        ]);
        Ok(parts)
    }

    /// The beginning of a message about an access: the kernel, and the number of the iteration.
    fn place_of_access(&mut self, what: &str) -> Vec<TextPart> {
        let kernel = self.frames.first().map_or(String::new(), |f| f.name.clone());
        let mut parts = vec![TextPart::Text(format!("{what}kernel[{kernel}] tid="))];
        parts.push(match self.iteration_number() {
            Some(number) => TextPart::Value(number, None),
            None => TextPart::Text("0".into()),
        });
        parts.push(TextPart::Text(", ".into()));
        parts
    }

    /// The number of the iteration of the parallel loop around, the last axis varying fastest.
    fn iteration_number(&mut self) -> Option<ValueId> {
        let (id, ranges) = self.iteration.clone()?;
        let wide = |s: &mut Self, v: ValueId| s.b.cast(v, Scalar::I64);
        let mut number = None;
        for (axis, range) in ranges.iter().enumerate() {
            let ty = self.b.ty(range.begin).clone();
            let index = self.b.push(Op::LoopIndex(id, axis as u32), ty);
            let (index, begin, end) = (wide(self, index), wide(self, range.begin), wide(self, range.end));
            let at = self.b.binary(BinaryOp::Sub, index, begin);
            number = Some(match number {
                Some(outer) => {
                    let extent = self.b.binary(BinaryOp::Sub, end, begin);
                    let rows = self.b.binary(BinaryOp::Mul, outer, extent);
                    self.b.binary(BinaryOp::Add, rows, at)
                }
                None => at,
            });
        }
        number
    }

    /// The functions that led here, with the line in each, as the end of a message.
    fn call_stack(&self) -> String {
        let mut stack = String::from(".\nCallstack:");
        let called_at = self.frames.iter().skip(1).map(|f| f.called_at);
        for (depth, (frame, at)) in self.frames.iter().zip(called_at.chain([self.b.span])).enumerate() {
            let place = self.sources.location(at);
            stack.push_str(&format!("\n{}{} ({place})", "  ".repeat(depth), frame.name));
        }
        stack
    }

    /// The offset of a view in its base array.
    fn offset_in_whole(&mut self, view: &ArrayView) -> Result<Value> {
        Ok(match (self.offset_of_view(view.array)?, view.offset) {
            (Some(outer), Some(offset)) => Value::Rt(self.sum(outer, offset)),
            (Some(offset), None) | (None, Some(offset)) => Value::Rt(offset),
            (None, None) => Value::Int(0),
        })
    }

    /// A view that is an argument: debug mode checks indices of it as it does those of views made in the kernel.
    pub(super) fn as_checked_view(&self, base: &Value) -> Option<ArrayView> {
        match base {
            Value::View(view) => Some((**view).clone()),
            Value::Array(array) if self.options.debug && self.view_arrays.contains(array) => {
                Some(ArrayView { array: *array, offset: None, size: None })
            }
            _ => None,
        }
    }

    /// Number of elements.
    pub(super) fn view_size(&mut self, view: &ArrayView) -> ValueId {
        match view.size {
            Some(size) => size,
            None => {
                let extent = self.extent(view.array, 0);
                self.rt(&extent).expect("compiler bug: an extent is a number")
            }
        }
    }

    fn view_bound(&mut self, v: &Value) -> Result<ValueId> {
        let found = self.rt(v)?;
        match self.b.ty(found) {
            Type::Scalar(s) if s.is_int() && s.bits() == 64 => Ok(found),
            Type::Scalar(s) if s.is_int() => Ok(self.b.cast(found, Scalar::I32)),
            ty => {
                let ty = type_name(ty);
                self.err(
                    Code::Type,
                    format!("offsets, sizes and indices of a `qd.BufferView` must be integers, not {ty}"),
                )
            }
        }
    }

    fn wide(&mut self, a: ValueId, b: ValueId) -> (ValueId, ValueId) {
        let is_long = |v: ValueId| self.b.ty(v).scalar().is_some_and(|s| s.bits() == 64);
        let s = if is_long(a) || is_long(b) { Scalar::I64 } else { Scalar::I32 };
        (self.b.cast(a, s), self.b.cast(b, s))
    }

    fn sum(&mut self, a: ValueId, b: ValueId) -> ValueId {
        let (a, b) = self.wide(a, b);
        self.b.binary(BinaryOp::Add, a, b)
    }

    fn difference(&mut self, a: ValueId, b: ValueId) -> ValueId {
        let (a, b) = self.wide(a, b);
        self.b.binary(BinaryOp::Sub, a, b)
    }

    fn assert_all(&mut self, tests: &[(BinaryOp, ValueId, ValueId)], message: Vec<TextPart>) {
        let mut all = self.b.int(1, Scalar::U1);
        for &(op, a, b) in tests {
            let (a, b) = self.wide(a, b);
            let test = self.b.binary(op, a, b);
            all = self.b.binary(BinaryOp::And, all, test);
        }
        self.b.push(Op::Assert(all, message), Type::Unit);
    }

    /// Only a parameter that is annotated as one is known to be a view.
    pub(super) fn no_view(&self, array: BufferId, name: &str) -> Box<Diagnostic> {
        let array = &self.buffers[array.index()].name;
        let text = format!("`{array}` is an array without `{name}`: only a `qd.BufferView` has it");
        Diagnostic::new(Code::Attribute, self.b.span, text).with_hint("annotate the parameter with `qd.BufferView`")
    }

    /// The attributes of a view, besides those of its elements.
    pub(super) fn view_attribute(&mut self, view: &ArrayView, base: &Value, name: &str) -> Result<Option<Value>> {
        Ok(Some(match name {
            "size" => Value::Rt(self.view_size(view)),
            "shape" => Value::tuple(vec![Value::Rt(self.view_size(view))]),
            "offset" => self.offset_in_whole(view)?,
            "arr" => Value::Array(self.whole_of_view(view.array).unwrap_or(view.array)),
            "subview" | "get_ndarray" => Value::Method(Rc::new((base.clone(), name.to_owned()))),
            _ => return Ok(None),
        }))
    }
}
