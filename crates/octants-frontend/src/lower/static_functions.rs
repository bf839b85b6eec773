//! Built-in functions that take effect at compile time: `static`, `static_assert`, `static_print`.

use std::rc::Rc;

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::Op;

use super::Lowerer;
use super::builtins::Call;
use crate::value::Value;

impl Lowerer<'_> {
    pub(super) fn lower_static(&mut self, call: Call) -> Result<Value> {
        let mut out = Vec::new();
        for v in call.args {
            out.push(match v {
                Value::Range(_) | Value::Ndrange(_) | Value::Grouped(_) => {
                    Value::Static(Rc::new(self.compile_time_items(&v)?))
                }
                Value::Rt(_) | Value::Var(_) | Value::Place(_) | Value::Text(_) => {
                    let mut what = self.describe(&v);
                    if let Value::Rt(id) = v
                        && let Op::Param(_) = self.b.body.inst(id).op
                    {
                        what = format!("a runtime kernel argument ({what})");
                    }
                    if self.runtime_type(&v).is_some_and(|t| t.is_tensor()) || matches!(v, Value::Place(_)) {
                        // An alias of an element or a vector.
                        v
                    } else {
                        return Err(Diagnostic::new(
                            Code::Syntax,
                            self.b.span,
                            format!(
                                "Input to qd.static must be compile-time constants or global pointers, instead of \
                                 {what}"
                            ),
                        )
                        .with_hint(
                            "the value is known only at run time: remove `qd.static`, or pass it as a `qd.Template` \
                             argument",
                        ));
                    }
                }
                v => v,
            });
        }
        match out.len() {
            0 => self.err(Code::Type, "`qd.static` takes at least one argument"),
            1 => Ok(out.remove(0)),
            _ => Ok(Value::tuple(out)),
        }
    }

    pub(super) fn lower_static_assert(&mut self, call: Call) -> Result<Value> {
        if !call.args[0].is_compile_time() && self.runtime_type(&call.args[0]).is_some() {
            return Err(Diagnostic::new(Code::Type, self.b.span, "Static assert with non-static condition.")
                .with_hint("write `assert`, which is checked in debug mode"));
        }
        if !self.compile_time_truth(&call.args[0], "the condition of `static_assert`")? {
            let message = match call.args.get(1) {
                Some(Value::Str(s)) => format!("Static assertion failed: {s}"),
                _ => "Static assertion failed".into(),
            };
            return self.err(Code::Compilation, message);
        }
        Ok(Value::None)
    }

    pub(super) fn lower_static_print(&mut self, call: Call) -> Result<Value> {
        let mut line = Vec::new();
        for v in &call.args {
            line.push(match self.to_host(v) {
                Some(o) => self.world.format(o, "").map_err(|e| self.host_error(e))?,
                None => format!("<{}>", self.describe(v)),
            });
        }
        self.world.print(&line.join(" "));
        Ok(Value::None)
    }
}
