//! Loop ranges: `range`, `ndrange`, `grouped`, `loop_config`.

use std::rc::Rc;

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{LoopConfig, Type};

use super::Lowerer;
use super::builtins::Call;
use crate::value::{Ndrange, Value};

const NDRANGE_BOUNDS: &str = "Every argument of ndrange should be a scalar or a tuple/list like (begin, end)";

impl Lowerer<'_> {
    pub(super) fn lower_range(&mut self, call: Call) -> Result<Value> {
        let args = &call.args[..];
        if self.static_depth > 0
            && args.len() == 3
            && let [Value::Int(a), Value::Int(b), Value::Int(step)] = args
        {
            let (a, b, step) = (*a, *b, *step);
            if step == 0 {
                return self.err(Code::Value, "range() arg 3 must not be zero");
            }
            let mut items = Vec::new();
            let mut i = a;
            while (step > 0 && i < b) || (step < 0 && i > b) {
                items.push(Value::Int(i));
                i += step;
            }
            return Ok(Value::Static(Rc::new(items)));
        }
        // A truth value is 0 or 1, as in Python.
        let bound = |value: &Value| match value {
            Value::Bool(is_one) => Value::Int(i128::from(*is_one)),
            other => other.clone(),
        };
        match args {
            [end] => Ok(Value::Range(Rc::new((Value::Int(0), bound(end))))),
            [begin, end] => Ok(Value::Range(Rc::new((bound(begin), bound(end))))),
            _ => Err(Diagnostic::new(
                Code::Syntax,
                self.b.span,
                format!("Range should have 1 or 2 arguments, found {}", args.len()),
            )
            .with_hint("multiply the index inside the loop, or use `qd.static(range(...))`, which supports a step")),
        }
    }

    pub(super) fn lower_ndrange(&mut self, call: Call) -> Result<Value> {
        if let Some((key, _)) = call.kwargs.iter().find(|(key, _)| key != "axes") {
            return self.err(Code::Type, format!("qd.ndrange() got an unexpected keyword argument '{key}'"));
        }
        let mut dims = Vec::new();
        for a in &call.args {
            let as_pair = match a {
                Value::Tuple(_) | Value::List(_) => Some(self.unpack(a)?),
                Value::Range(r) => Some(vec![r.0.clone(), r.1.clone()]),
                _ => None,
            };
            match as_pair {
                Some(pair) => match &pair[..] {
                    [b, e] => dims.push((b.clone(), e.clone())),
                    _ => return self.err(Code::Syntax, NDRANGE_BOUNDS),
                },
                None => {
                    if let Some(Type::Vector(_, n)) = self.runtime_type(a) {
                        if n != 2 {
                            return self.err(Code::Syntax, NDRANGE_BOUNDS);
                        }
                        let pair = self.unpack(a)?;
                        dims.push((pair[0].clone(), pair[1].clone()));
                        continue;
                    }
                    dims.push((Value::Int(0), a.clone()));
                }
            }
        }
        for (b, e) in &dims {
            for v in [b, e] {
                if let Value::Float(_) = v {
                    return self.err(
                        Code::Type,
                        "Every argument of ndrange should be an integer scalar or a tuple/list of (int, int)",
                    );
                }
            }
        }
        let order = self.order_of_axes(dims.len(), call.keyword("axes"))?;
        Ok(Value::Ndrange(Rc::new(Ndrange { dims, order, level: None })))
    }

    /// The order of the axes of an `ndrange`, outermost first.
    fn order_of_axes(&mut self, n: usize, axes: Option<Value>) -> Result<Vec<usize>> {
        let v = match axes {
            None | Some(Value::None) => return Ok((0..n).collect()),
            Some(v) => v,
        };
        let mut order = Vec::new();
        let Ok(items) = self.unpack(&v) else {
            return self.err(Code::Type, "`axes` of qd.ndrange must be a tuple of integers");
        };
        for item in items {
            match item {
                Value::Int(i) => order.push(i),
                other => {
                    let what = self.describe(&other);
                    return self
                        .err(Code::Type, format!("qd.ndrange(axes=...) entries must be Python ints; got {what}"));
                }
            }
        }
        if order.len() != n {
            let message = format!(
                "qd.ndrange(axes=...) has {} entries but ndrange was called with {n} dimension argument(s); they must \
                 match",
                order.len()
            );
            return self.err(Code::Syntax, message);
        }
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if sorted != (0..n as i128).collect::<Vec<_>>() {
            let listed = order.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return self.err(Code::Syntax, format!("qd.ndrange(axes=({listed})) is not a permutation of range({n})"));
        }
        Ok(order.into_iter().map(|i| i as usize).collect())
    }

    pub(super) fn lower_grouped(&mut self, call: Call) -> Result<Value> {
        match &call.args[..] {
            [Value::Static(items)] => Ok(Value::Static(items.clone())),
            [Value::Range(_)] => {
                self.err(Code::Syntax, "Only 'qd.ndrange', fields and arrays are allowed in 'qd.grouped(...)'")
            }
            [v] => {
                if let Value::Obj(o) = v
                    && let Some(n) = self.host_ndrange(*o)?
                {
                    return Ok(Value::Grouped(Rc::new(Value::Ndrange(Rc::new(n)))));
                }
                Ok(Value::Grouped(Rc::new(v.clone())))
            }
            _ => self.err(Code::Syntax, "`qd.grouped` takes one argument"),
        }
    }

    pub(super) fn lower_loop_config(&mut self, call: Call) -> Result<Value> {
        if !call.args.is_empty() {
            return self.err(Code::Type, "`qd.loop_config` takes keyword arguments only");
        }
        let mut config = self.pending_config.take().unwrap_or_default();
        for (name, v) in &call.kwargs {
            let number = |l: &Self| match (v, l.known_integer(v)) {
                (_, Some(i)) if i >= 0 && i <= i128::from(u32::MAX) => Ok(i as u32),
                (Value::None, _) => Ok(0),
                (_, Some(_)) => l.err(Code::Type, format!("`{name}` of loop_config must be a non-negative integer")),
                (_, None) => l.err(
                    Code::Type,
                    format!("`{name}` of loop_config must be an integer that is known at compile time"),
                ),
            };
            match name.as_str() {
                "serialize" => config.serialize = self.compile_time_truth(v, "`serialize` of loop_config")?,
                "block_dim" => config.block_dim = Some(number(self)?).filter(|n| *n > 0),
                "parallelize" => config.num_threads = Some(number(self)?).filter(|n| *n > 0),
                "name" => {
                    config.name = match v {
                        Value::Str(s) => Some(s.to_string()),
                        Value::None => None,
                        _ => return self.err(Code::Type, "`name` of loop_config must be a string"),
                    }
                }
                "bit_vectorize" => {
                    self.handles_words = self.compile_time_truth(v, "`bit_vectorize` of loop_config")?;
                }
                "block_dim_adaptive" => {}
                other => return self.err(Code::Type, format!("`qd.loop_config` has no option `{other}`")),
            }
        }
        self.pending_config = Some(LoopConfig { group: None, ..config });
        Ok(Value::None)
    }
}
