//! Ranges of an array in a kernel: `v[2:4]` and `v.subview(offset, size)` of an array argument with one axis.
//!
//! A view is the array, an offset and a size. It has no memory of its own, so it is taken apart where it is used:
//! functions that get one are lowered where they are called.

use std::rc::Rc;

use octants_diag::{Code, Result};
use octants_ir::{BinaryOp, Layout, Op, Scalar, TextPart, Type, ValueId};

use super::Lowerer;
use super::builtins::Call;
use crate::value::{ArrayView, Value};

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
            return self.err(Code::Type, format!("`qd.BufferView` is a view of an array with one axis, not of {what}"));
        };
        self.lower_subview(&view, &args, &call.kwargs)
    }

    /// `view.subview(offset, size)`.
    pub(super) fn lower_subview(
        &mut self,
        view: &ArrayView,
        args: &[Value],
        kwargs: &[(String, Value)],
    ) -> Result<Value> {
        let given = |at: usize, name: &str| {
            args.get(at).or_else(|| kwargs.iter().find(|(k, _)| k == name).map(|(_, v)| v)).cloned()
        };
        let (Some(offset), Some(size)) = (given(0, "offset"), given(1, "size")) else {
            return self.err(Code::Type, "`subview` takes `offset` and `size`");
        };
        let (offset, size) = (self.view_bound(&offset)?, self.view_bound(&size)?);
        self.narrowed(view, offset, size)
    }

    /// `view[begin:end]`.
    pub(super) fn slice_of_view(&mut self, view: &ArrayView, parts: &[Value; 3]) -> Result<Value> {
        let [begin, end, step] = parts;
        if !matches!(step, Value::None | Value::Int(1)) {
            let shown = match step {
                Value::Int(n) => format!("step={n}"),
                _ => String::from("another step"),
            };
            return self.err(Code::Value, format!("a slice of a BufferView requires step=1, got {shown}"));
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
        self.narrowed(view, begin, size)
    }

    fn narrowed(&mut self, view: &ArrayView, offset: ValueId, size: ValueId) -> Result<Value> {
        if self.options.debug {
            let (outer, zero) = (self.view_size(view), self.b.int(0, Scalar::I32));
            let end = self.sum(offset, size);
            let tests = [(BinaryOp::Le, zero, offset), (BinaryOp::Le, zero, size), (BinaryOp::Le, end, outer)];
            let parts = vec![
                TextPart::Text("subview out of range: offset=".into()),
                TextPart::Value(offset, None),
                TextPart::Text(", size=".into()),
                TextPart::Value(size, None),
                TextPart::Text(", parent size=".into()),
                TextPart::Value(outer, None),
            ];
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
            let parts = self.out_of_view(view, index, size);
            self.assert_all(&[(BinaryOp::Le, zero, index), (BinaryOp::Lt, index, size)], parts);
        }
        let at = match view.offset {
            Some(offset) => self.sum(offset, index),
            None => index,
        };
        self.element(view.array, &[Value::Rt(at)])
    }

    /// The message about an index outside of a view, with the functions that led to it.
    fn out_of_view(&mut self, view: &ArrayView, index: ValueId, size: ValueId) -> Vec<TextPart> {
        let kernel = self.frames.first().map_or(String::new(), |f| f.name.clone());
        let mut parts = vec![
            TextPart::Text(format!("BufferView Out Of Range: kernel[{kernel}], got index ")),
            TextPart::Value(index, None),
        ];
        if let Some(offset) = view.offset {
            parts.push(TextPart::Text(" (offset=".into()));
            parts.push(TextPart::Value(offset, None));
            parts.push(TextPart::Text(", size=".into()));
        } else {
            parts.push(TextPart::Text(" (size=".into()));
        }
        parts.push(TextPart::Value(size, None));
        let mut stack = String::from(").\nCallstack:");
        for (depth, frame) in self.frames.iter().enumerate() {
            stack.push_str(&format!("\n{}{}", "  ".repeat(depth), frame.name));
        }
        parts.push(TextPart::Text(stack));
        parts
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
            _ => self.err(Code::Type, "the bounds of a view are integers"),
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

    /// The attributes that a view has beside those of its elements.
    pub(super) fn view_attribute(&mut self, view: &ArrayView, base: &Value, name: &str) -> Result<Option<Value>> {
        Ok(Some(match name {
            "size" => Value::Rt(self.view_size(view)),
            "shape" => Value::tuple(vec![Value::Rt(self.view_size(view))]),
            "offset" => match view.offset {
                Some(offset) => Value::Rt(offset),
                None => Value::Int(0),
            },
            "subview" => Value::Method(Rc::new((base.clone(), name.to_owned()))),
            _ => return Ok(None),
        }))
    }
}
