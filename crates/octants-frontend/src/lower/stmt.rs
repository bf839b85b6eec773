//! Statements.

use octants_diag::{Code, Diagnostic, Result, Span};
use octants_ir::{AtomicOp, ForLoop, LoopConfig, Op, Scalar, Type, ValueId};

use super::{Binding, Flow, LoopKind, Lowerer, ReturnMode};
use crate::arith;
use crate::ast::{Expr, ExprKind, Operator, Stmt, StmtKind};
use crate::syntax_facts::is_static_call;
use crate::value::{Members, Place, Value};
use crate::world::Entity;

impl Lowerer<'_> {
    /// Lowers the statements of the current frame's function.
    pub(super) fn lower_body(&mut self, body: &[Stmt]) -> Result<Flow> {
        self.check_stream_blocks(body)?;
        self.lower_stmts(body)
    }

    pub(super) fn lower_stmts(&mut self, stmts: &[Stmt]) -> Result<Flow> {
        for s in stmts {
            self.b.span = s.head();
            let flow = self.lower_stmt(s)?;
            if flow != Flow::Normal {
                return Ok(flow);
            }
        }
        Ok(Flow::Normal)
    }

    fn lower_stmt(&mut self, s: &Stmt) -> Result<Flow> {
        match &s.kind {
            StmtKind::Expr(e) => {
                if !matches!(e.kind, ExprKind::Str(_) | ExprKind::Unsupported("Ellipsis")) {
                    self.lower_expr(e)?;
                }
            }
            StmtKind::Assign(targets, value) => {
                let is_static = is_static_call(value);
                let v = self.lower_expr(value)?;
                let v = if is_static || targets.len() == 1 { v } else { self.settle(v)? };
                for t in targets {
                    self.b.span = s.span;
                    self.assign(t, v.clone(), is_static)?;
                }
            }
            StmtKind::AnnAssign(target, annotation, value) => {
                self.annotated_assign(target, annotation, value.as_ref())?
            }
            StmtKind::AugAssign(target, op, value) => self.aug_assign(target, *op, value)?,
            StmtKind::Return(value) => return self.lower_return(value.as_ref(), s.span),
            StmtKind::If(test, then, orelse) => return self.lower_if(test, then, orelse),
            StmtKind::For(target, iter, body, orelse) => {
                if *orelse {
                    return self.err(Code::Syntax, "'else' clause for 'for' not supported in kernels");
                }
                return self.lower_for(target, iter, body);
            }
            StmtKind::While(test, body, orelse) => {
                if *orelse {
                    return self.err(Code::Syntax, "'else' clause for 'while' not supported in kernels");
                }
                self.lower_while(test, body)?;
            }
            StmtKind::With(items, body) => return self.lower_with(items, body),
            StmtKind::Assert(test, message) => self.lower_assert(test, message.as_ref())?,
            StmtKind::Pass => {}
            StmtKind::Break => return self.lower_break(),
            StmtKind::Continue => return self.lower_continue(),
            StmtKind::Unsupported("FunctionDef") => {
                return Err(Diagnostic::new(Code::Syntax, s.span, "Function definition is not allowed in 'qd.kernel'")
                    .with_hint("define it at module level and decorate it with `@qd.func`"));
            }
            StmtKind::Unsupported(what) => {
                return Err(Diagnostic::new(Code::Syntax, s.span, format!("Unsupported node \"{what}\""))
                    .with_hint("this statement of Python is not part of the kernel language"));
            }
        }
        Ok(Flow::Normal)
    }

    // Assignment.

    /// What an assigned name holds: run-time values move to fresh locals, compile-time numbers become run-time variables.
    fn settle(&mut self, v: Value) -> Result<Value> {
        Ok(match v {
            Value::Int(_) | Value::Float(_) | Value::Bool(_) | Value::Place(_) | Value::Var(_) | Value::Rt(_) => {
                let rt = self.rt(&v)?;
                Value::Var(self.new_local("tmp", rt))
            }
            Value::Tuple(items) => {
                Value::tuple(items.iter().map(|i| self.settle(i.clone())).collect::<Result<Vec<_>>>()?)
            }
            Value::List(items) => {
                Value::list(items.iter().map(|i| self.settle(i.clone())).collect::<Result<Vec<_>>>()?)
            }
            Value::Members(ref m) if !m.is_array => {
                let rt = self.struct_value(m)?;
                Value::Var(self.new_local("tmp", rt))
            }
            other => other,
        })
    }

    pub(super) fn assign(&mut self, target: &Expr, value: Value, is_static: bool) -> Result<()> {
        match &target.kind {
            ExprKind::Name(name) => self.assign_name(name, value, is_static),
            ExprKind::Tuple(targets) | ExprKind::List(targets) => {
                let items = self.unpack(&value)?;
                if items.len() != targets.len() {
                    return self.err(
                        Code::Syntax,
                        format!(
                            "The number of targets is not equal to value length: {} targets, {} values",
                            targets.len(),
                            items.len()
                        ),
                    );
                }
                // All values are read before the first target is written.
                let items = if is_static {
                    items
                } else {
                    items.into_iter().map(|i| self.detach(i)).collect::<Result<Vec<_>>>()?
                };
                for (t, item) in targets.iter().zip(items) {
                    self.assign(t, item, is_static)?;
                }
                Ok(())
            }
            ExprKind::Subscript(..) | ExprKind::Attribute(..) => {
                if is_static {
                    return self.err(Code::Syntax, "Static assign cannot be used on elements in arrays");
                }
                // The value is read before the target's indices may write.
                let value = if crate::syntax_facts::may_write(target) { self.detach_deep(value)? } else { value };
                match self.target_place(target)? {
                    (places @ Value::List(_), true) => self.store_slice(&places, &value),
                    (place, _) => self.store(&place, &value),
                }
            }
            _ => self.err(Code::Syntax, "this expression cannot be assigned to"),
        }
    }

    /// Reads a place so that a later write to it does not change the value.
    fn detach(&mut self, v: Value) -> Result<Value> {
        Ok(match v {
            Value::Var(_) | Value::Place(_) => Value::Rt(self.rt(&v)?),
            other => other,
        })
    }

    /// The items of a tuple, list, vector or struct.
    pub(super) fn unpack(&mut self, value: &Value) -> Result<Vec<Value>> {
        if let Some(items) = value.items() {
            return Ok(items.to_vec());
        }
        match self.runtime_type(value) {
            Some(Type::Vector(_, n)) => {
                let v = self.rt(value)?;
                return Ok((0..n).map(|i| Value::Rt(self.b.extract(v, i))).collect());
            }
            Some(Type::Struct(s)) => {
                let v = self.rt(value)?;
                return Ok((0..s.members.len() as u32).map(|i| Value::Rt(self.b.extract(v, i))).collect());
            }
            Some(Type::Matrix(..)) => {
                return self.err(Code::Value, "Matrices with more than one columns cannot be unpacked");
            }
            _ => {}
        }
        if let Value::Members(m) = value {
            return Ok(m.items.iter().map(|i| i.1.clone()).collect());
        }
        if let Value::Obj(o) = value {
            let items = self.world.iterate(*o).map_err(|e| self.host_error(e))?;
            return Ok(items.into_iter().map(|o| self.lift(o)).collect());
        }
        let what = self.describe(value);
        self.err(Code::Syntax, format!("Cannot unpack type: {what}"))
    }

    fn assign_name(&mut self, name: &str, value: Value, is_static: bool) -> Result<()> {
        if let Some(Binding { value: old, immutable }) = self.lookup(name).cloned() {
            if let Some(what) = immutable {
                return Err(Diagnostic::new(
                    Code::Syntax,
                    self.b.span,
                    if what == "kernel argument" {
                        format!(
                            "Kernel argument \"{name}\" is immutable in the kernel. If you want to change its value, \
                             please create a new variable."
                        )
                    } else {
                        format!("the {what} \"{name}\" cannot be assigned")
                    },
                )
                .with_hint(format!("copy it: `{name}_copy = {name}`")));
            }
            if is_static {
                return self.err(Code::Syntax, format!("Recreating variables is not allowed: `{name}` exists already"));
            }
            if !matches!(old, Value::Var(_) | Value::Place(_) | Value::Members(_)) {
                return self.err(
                    Code::Syntax,
                    format!("Variable '{name}' cannot be assigned. Maybe it is not a Quadrants object?"),
                );
            }
            return self.store(&old, &value);
        }
        if is_static {
            self.bind_value(name, value);
            return Ok(());
        }
        let value = self.variable(name, value)?;
        self.bind_value(name, value);
        Ok(())
    }

    /// What a new variable holds: a copy.
    pub(super) fn variable(&mut self, name: &str, value: Value) -> Result<Value> {
        Ok(match value {
            Value::Rt(_) | Value::Var(_) | Value::Place(_) | Value::Int(_) | Value::Float(_) | Value::Bool(_) => {
                let v = self.rt(&value)?;
                if *self.b.ty(v) == Type::Unit {
                    return self
                        .err(Code::Type, "the function called here returns nothing: there is no value to assign");
                }
                Value::Var(self.new_local(name, v))
            }
            Value::Members(ref m) if !m.is_array => {
                let v = self.struct_value(m)?;
                Value::Var(self.new_local(name, v))
            }
            Value::Obj(o) => match self.world.entity(o) {
                Entity::TensorConst { .. } | Entity::StructConst { .. } => {
                    let v = self.rt(&value)?;
                    Value::Var(self.new_local(name, v))
                }
                _ => value,
            },
            Value::Tuple(ref items) => {
                Value::tuple(items.iter().map(|i| self.variable(name, i.clone())).collect::<Result<Vec<_>>>()?)
            }
            Value::List(ref items) => {
                Value::list(items.iter().map(|i| self.variable(name, i.clone())).collect::<Result<Vec<_>>>()?)
            }
            other => other,
        })
    }

    /// The address of something assignable.
    pub(super) fn place(&mut self, v: &Value) -> Option<Place> {
        match v {
            Value::Var(l) => Some(Place { addr: self.b.local_addr(*l), global: false }),
            Value::Place(p) => Some(*p),
            _ => None,
        }
    }

    /// `target = value`, converting to the target's type.
    pub(super) fn store(&mut self, target: &Value, value: &Value) -> Result<()> {
        if let Value::Members(m) = target {
            if m.is_array {
                return self.err(Code::Syntax, "a struct field cannot be assigned in a kernel; assign its elements");
            }
            return self.store_members(m, value);
        }
        if let Some(targets) = target.items().filter(|t| !t.is_empty()) {
            // A slice: its values may be read from the places that are written.
            let values = self.spread(value, targets.len())?;
            for (t, v) in targets.iter().zip(&values) {
                self.store(t, v)?;
            }
            return Ok(());
        }
        let Some(place) = self.place(target) else {
            let what = self.describe(target);
            return self.err(Code::Syntax, format!("{what} cannot be assigned. Maybe it is not a Quadrants object?"));
        };
        let to = self.b.pointee(place.addr).clone();
        let v = self.value_for(value, &to)?;
        self.b.store(place.addr, v);
        Ok(())
    }

    /// What an assignment's target names. True beside the (nested) list of places that a swizzle or a slice names.
    fn target_place(&mut self, target: &Expr) -> Result<(Value, bool)> {
        Ok(match &target.kind {
            ExprKind::Attribute(base, name) => {
                let base = self.lower_expr(base)?;
                self.b.span = target.span;
                match self.swizzle_places(&base, name)? {
                    Some(places) => (Value::list(places), true),
                    None => (self.attribute(&base, name)?, false),
                }
            }
            ExprKind::Subscript(base, index) => {
                let base = self.lower_expr(base)?;
                let index = self.lower_index(index)?;
                self.b.span = target.span;
                match self.slice_places(&base, &index)? {
                    Some(places) => (places, true),
                    None => (self.subscript(&base, index)?, false),
                }
            }
            _ => (self.lower_expr(target)?, false),
        })
    }

    /// Stores into the (nested) list of places of a slice, or into one place.
    fn store_slice(&mut self, places: &Value, value: &Value) -> Result<()> {
        let Value::List(items) = places else { return self.store(places, value) };
        if matches!(self.runtime_type(value), Some(Type::Scalar(_))) {
            return items.iter().try_for_each(|p| self.store_slice(p, value));
        }
        let values = match self.runtime_type(value) {
            Some(Type::Matrix(_, n, _)) => {
                (0..n).map(|i| self.subscript(value, vec![Value::Int(i128::from(i))])).collect::<Result<Vec<_>>>()?
            }
            _ => self.unpack(value)?,
        };
        if values.len() != items.len() {
            return self.err(Code::Value, format!("a slice of {} is assigned {} values", items.len(), values.len()));
        }
        let values = values.into_iter().map(|v| self.detach(v)).collect::<Result<Vec<_>>>()?;
        items.iter().zip(&values).try_for_each(|(p, v)| self.store_slice(p, v))
    }

    /// A value for each of `n` places: the items of a vector or list, the rows of a matrix, or one number for all.
    fn spread(&mut self, value: &Value, n: usize) -> Result<Vec<Value>> {
        let values = match self.runtime_type(value) {
            Some(Type::Scalar(_)) => return Ok(vec![self.detach(value.clone())?; n]),
            Some(Type::Matrix(_, rows, _)) => {
                let m = Value::Rt(self.rt(value)?);
                (0..rows).map(|i| self.subscript(&m, vec![Value::Int(i.into())])).collect::<Result<Vec<_>>>()?
            }
            _ => self.unpack(value)?,
        };
        if values.len() != n {
            return self.err(Code::Value, format!("{n} components are assigned {} values", values.len()));
        }
        values.into_iter().map(|v| self.detach_deep(v)).collect()
    }

    fn store_members(&mut self, target: &Members, value: &Value) -> Result<()> {
        let values = self.member_values(value)?;
        for (name, member) in &target.items {
            let Some((_, v)) = values.iter().find(|(n, _)| n == name) else {
                return self.err(Code::Type, format!("the struct assigned here has no member `{name}`"));
            };
            self.store(member, v)?;
        }
        Ok(())
    }

    /// A value as the run-time type that a variable or element has.
    pub(super) fn value_for(&mut self, value: &Value, to: &Type) -> Result<ValueId> {
        if let (Some(items), Some(s)) = (value.items(), to.scalar())
            && to.is_tensor()
        {
            let v = self.make_tensor(items, Some(s))?;
            return arith::assign_cast(&mut self.b, v, to);
        }
        let to_scalar = to.scalar();
        let v = match (value, to_scalar) {
            // A literal takes the type of where it goes, so that nothing is lost on the way.
            (Value::Int(i), Some(s)) if !s.is_float() => {
                let v = *i as i64;
                self.b.int(if s == Scalar::U1 { i64::from(*i != 0) } else { wrap(v, s) }, s)
            }
            (Value::Int(i), Some(s)) => self.b.float(*i as f64, s),
            (Value::Float(f), Some(s)) if s.is_float() => self.b.float(*f, s),
            _ => self.rt(value)?,
        };
        if let (Type::Struct(s), Type::Scalar(_)) = (to, self.b.ty(v).clone()) {
            // One number fills every member.
            let parts = s.members.iter().map(|(_, t)| self.value_for(&Value::Rt(v), t)).collect::<Result<Vec<_>>>()?;
            return Ok(self.b.push(Op::MakeStruct(parts), to.clone()));
        }
        if matches!(to, Type::Struct(_)) && self.b.ty(v) != to {
            let (from, to) = (self.b.ty(v).to_string(), to.to_string());
            return self.err(Code::Type, format!("cannot assign a value of type {from} to a variable of type {to}"));
        }
        if to.is_tensor() && !self.b.ty(v).is_tensor() {
            let scalar = self.b.cast(v, to.scalar().unwrap_or(Scalar::F32));
            return Ok(self.b.splat(scalar, to));
        }
        arith::assign_cast(&mut self.b, v, to)
    }

    fn annotated_assign(&mut self, target: &Expr, annotation: &Expr, value: Option<&Expr>) -> Result<()> {
        let annotation_value = self.lower_expr(annotation)?;
        let Some(value) = value else {
            return self.err(Code::Syntax, "a declaration without a value is not supported")?;
        };
        if is_static_call(value) {
            return self.err(Code::Syntax, "Static assign cannot be used on annotated assignment");
        }
        let v = self.lower_expr(value)?;
        self.b.span = target.span;
        let ty = self.type_of_value(&annotation_value)?;
        if let ExprKind::Name(name) = &target.kind {
            if let Some(old) = self.lookup(name).cloned() {
                if old.immutable.is_some() {
                    return self.assign_name(name, v, false);
                }
                if self.runtime_type(&old.value).as_ref() != Some(&ty) {
                    return self.err(Code::Syntax, "Static assign cannot have type overloading");
                }
                return self.store(&old.value, &v);
            }
            let v = self.value_for(&v, &ty)?;
            let local = self.new_local(name, v);
            self.bind_value(name, Value::Var(local));
            return Ok(());
        }
        let place = self.lower_expr(target)?;
        if self.runtime_type(&place).as_ref() != Some(&ty) {
            return self.err(Code::Syntax, "Static assign cannot have type overloading");
        }
        self.store(&place, &v)
    }

    fn aug_assign(&mut self, target: &Expr, op: Operator, value: &Expr) -> Result<()> {
        let span = self.b.span;
        if let ExprKind::Name(name) = &target.kind
            && let Some(b) = self.lookup(name)
            && b.immutable.is_some()
        {
            return self.assign_name(name, Value::None, false);
        }
        let (place, is_slice) = self.target_place(target)?;
        if let (Value::List(places), true) = (&place, is_slice) {
            let v = self.lower_expr(value)?;
            self.b.span = span;
            return self.aug_store_all(places, op, &v);
        }
        let v = self.lower_expr(value)?;
        self.b.span = span;
        if let Value::Members(m) = &place {
            let values = self.member_values(&v)?;
            for (name, member) in &m.items {
                if let Some((_, v)) = values.iter().find(|(n, _)| n == name) {
                    self.aug_store(member, op, v)?;
                }
            }
            return Ok(());
        }
        self.aug_store(&place, op, &v)
    }

    fn aug_store_all(&mut self, places: &[Value], op: Operator, value: &Value) -> Result<()> {
        let values = self.spread(value, places.len())?;
        for (p, v) in places.iter().zip(&values) {
            match p {
                Value::List(row) => self.aug_store_all(row, op, v)?,
                p => self.aug_store(p, op, v)?,
            }
        }
        Ok(())
    }

    fn aug_store(&mut self, target: &Value, op: Operator, value: &Value) -> Result<()> {
        let Some(place) = self.place(target) else {
            let what = self.describe(target);
            return self.err(Code::Syntax, format!("{what} cannot be changed by `{}=`", op.symbol()));
        };
        let ty = self.b.pointee(place.addr).clone();
        let atomic = match op {
            Operator::Add => Some(AtomicOp::Add),
            Operator::Sub => Some(AtomicOp::Sub),
            Operator::Mul => Some(AtomicOp::Mul),
            Operator::BitAnd => Some(AtomicOp::And),
            Operator::BitOr => Some(AtomicOp::Or),
            Operator::BitXor => Some(AtomicOp::Xor),
            _ => None,
        };
        let mut v = self.operand_for(value, &ty)?;
        let (to, from) = (ty.scalar(), self.b.ty(v).scalar());
        // `+=` and `-=` convert the operand to the target's type; the others work in the type of `target op value`.
        let converts = match op {
            Operator::Add | Operator::Sub => true,
            Operator::Mul => to.zip(from).is_some_and(|(to, from)| to.promote(from) == to),
            _ => to.is_some_and(|s| !s.is_float()) && from.is_some_and(|s| !s.is_float()),
        };
        if converts && let (Some(_), Some(atomic)) = (from, atomic) {
            v = arith::assign_cast(&mut self.b, v, &ty)?;
            if place.global {
                self.b.push(Op::Atomic(atomic, place.addr, v), ty);
                return Ok(());
            }
        }
        let old = self.b.load(place.addr);
        let new = arith::binary(&mut self.b, &self.options, op, old, v)?;
        let new = arith::assign_cast(&mut self.b, new, &ty)?;
        self.b.store(place.addr, new);
        Ok(())
    }

    /// An operand that meets a value of type `ty`: scalars spread over tensors.
    pub(super) fn operand_for(&mut self, value: &Value, ty: &Type) -> Result<ValueId> {
        let v = match value.items() {
            Some(items) => self.make_tensor(items, None)?,
            None => self.rt(value)?,
        };
        if ty.is_tensor() && !self.b.ty(v).is_tensor() {
            return Ok(self.b.splat(v, ty));
        }
        Ok(v)
    }

    // Control.

    fn lower_if(&mut self, test: &Expr, then: &[Stmt], orelse: &[Stmt]) -> Result<Flow> {
        let is_static = is_static_call(test);
        let cond = self.lower_expr(test)?;
        if is_static {
            let cond = self.compile_time_truth(&cond, "an `if qd.static(...)`")?;
            return self.lower_stmts(if cond { then } else { orelse });
        }
        self.b.span = test.span;
        let cond = self.condition(&cond)?;
        let (a, flow_a) = self.in_block(|s| s.lower_stmts(then))?;
        let (b, flow_b) = self.in_block(|s| s.lower_stmts(orelse))?;
        for flow in [flow_a, flow_b] {
            match flow {
                Flow::Normal | Flow::Return => {}
                Flow::Break | Flow::Continue => {
                    return self.err(
                        Code::Syntax,
                        "You are trying to `break` or `continue` a static `for` loop from inside an `if` that is decided at run time",
                    );
                }
            }
        }
        self.b.push(Op::If(cond, a, b), Type::Unit);
        Ok(Flow::Normal)
    }

    /// `while qd.graph.do_while(counter)`: the body runs, then again as long as the counter is not zero.
    fn lower_do_while(&mut self, counter: &Expr, body: &[Stmt]) -> Result<()> {
        let counter = self.lower_expr(counter)?;
        let Some(buffer) = self.as_array(&counter) else {
            let what = self.describe(&counter);
            return self.err(Code::Type, format!("qd.graph.do_while takes a 0-dimensional i32 ndarray, not {what}"));
        };
        let decl = &self.buffers[buffer.index()];
        if decl.ndim != 0 || decl.elem != Type::I32 {
            return self
                .err(Code::Type, format!("qd.graph.do_while: `{}` must be a 0-dimensional i32 ndarray", decl.name));
        }
        self.frame().loops.push(LoopKind::Serial);
        let result = self.in_block(|s| {
            s.lower_stmts(body)?;
            let value = s.element(buffer, &[])?;
            let again = s.condition(&value)?;
            let go_on = s.b.body.add_block();
            let stop = s.b.body.add_block();
            let back = s.b.set_cursor(stop);
            s.b.push(Op::Break, Type::Unit);
            s.b.set_cursor(back);
            s.b.push(Op::If(again, go_on, stop), Type::Unit);
            Ok(())
        });
        self.frame().loops.pop();
        let (block, ()) = result?;
        self.b.push(Op::Loop(block), Type::Unit);
        Ok(())
    }

    fn lower_while(&mut self, test: &Expr, body: &[Stmt]) -> Result<()> {
        // Looked at only when it may be the name: the test must not be evaluated outside of the loop.
        if let ExprKind::Call(func, arguments) = &test.kind
            && let ExprKind::Attribute(_, name) | ExprKind::Name(name) = &func.kind
            && let ([counter], true) = (&arguments.positional[..], name.ends_with("do_while"))
        {
            let callee = self.lower_expr(func)?;
            let is_do_while = matches!(&callee, Value::Obj(o)
                if matches!(self.world.entity(*o), Entity::Builtin(n) if n == "do_while"));
            if is_do_while {
                return self.lower_do_while(counter, body);
            }
        }
        self.frame().loops.push(LoopKind::Serial);
        let result = self.in_block(|s| {
            let cond = s.lower_expr(test)?;
            s.b.span = test.span;
            if !matches!(cond, Value::Bool(true)) {
                let cond = s.condition(&cond)?;
                let go_on = s.b.body.add_block();
                let stop = s.b.body.add_block();
                let back = s.b.set_cursor(stop);
                s.b.push(Op::Break, Type::Unit);
                s.b.set_cursor(back);
                s.b.push(Op::If(cond, go_on, stop), Type::Unit);
            }
            s.lower_stmts(body)
        });
        self.frame().loops.pop();
        let (block, _) = result?;
        self.b.push(Op::Loop(block), Type::Unit);
        Ok(())
    }

    fn lower_break(&mut self) -> Result<Flow> {
        match self.frame_ref().loops.last().copied() {
            None => self.err(Code::Syntax, "`break` outside of a loop"),
            Some(LoopKind::Static(_)) => Ok(Flow::Break),
            Some(LoopKind::Serial) => {
                self.b.push(Op::Break, Type::Unit);
                Ok(Flow::Normal)
            }
            Some(LoopKind::Parallel) => Err(Diagnostic::new(
                Code::Syntax,
                self.b.span,
                "Cannot break in the outermost loop: its iterations run in parallel",
            )
            .with_hint("write `qd.loop_config(serialize=True)` before the loop to run it in order, or skip iterations with `continue`")),
        }
    }

    fn lower_continue(&mut self) -> Result<Flow> {
        match self.frame_ref().loops.last().copied() {
            None => self.err(Code::Syntax, "`continue` outside of a loop"),
            Some(LoopKind::Static(_)) => Ok(Flow::Continue),
            Some(LoopKind::Serial | LoopKind::Parallel) => {
                self.b.push(Op::Continue, Type::Unit);
                Ok(Flow::Normal)
            }
        }
    }

    fn lower_return(&mut self, value: Option<&Expr>, span: Span) -> Result<Flow> {
        let v = match value {
            Some(e) => self.lower_expr(e)?,
            None => Value::None,
        };
        self.b.span = value.map_or(span, |e| e.span);
        let mode = self.frame_ref().ret.clone();
        match mode {
            ReturnMode::Kernel(types) => {
                if self.frame_ref().control_depth > 0 {
                    return self.err(Code::Syntax, "Return inside non-static if/for is not supported");
                }
                if !matches!(v, Value::None) {
                    self.kernel_return(&types, v)?;
                }
                Ok(Flow::Return)
            }
            ReturnMode::Inline(annotation) => {
                if self.frame_ref().control_depth > 0 {
                    return Err(Diagnostic::new(
                        Code::Syntax,
                        self.b.span,
                        "Return inside non-static if/for is not supported in a function with parallel loops",
                    )
                    .with_hint("return once at the end, or call the function from inside a loop"));
                }
                let v = match annotation {
                    Some(obj) if !matches!(v, Value::None) => self.annotated_result(obj, v)?,
                    _ => self.detach_deep(v)?,
                };
                self.frame().returned = Some(v);
                Ok(Flow::Return)
            }
            ReturnMode::Function(ty) => {
                self.function_return(ty, v)?;
                Ok(Flow::Return)
            }
        }
    }

    /// What a call yields must not change when the callee's variables are gone.
    fn detach_deep(&mut self, v: Value) -> Result<Value> {
        Ok(match v {
            Value::Var(_) => Value::Rt(self.rt(&v)?),
            Value::Place(_) => Value::Rt(self.rt(&v)?),
            Value::Tuple(items) => {
                Value::tuple(items.iter().map(|i| self.detach_deep(i.clone())).collect::<Result<Vec<_>>>()?)
            }
            Value::List(items) => {
                Value::list(items.iter().map(|i| self.detach_deep(i.clone())).collect::<Result<Vec<_>>>()?)
            }
            Value::Members(ref m) if !m.is_array => Value::Rt(self.struct_value(m)?),
            other => other,
        })
    }

    fn kernel_return(&mut self, types: &[(crate::world::Obj, Type)], v: Value) -> Result<()> {
        if types.is_empty() {
            return Err(Diagnostic::new(
                Code::Syntax,
                self.b.span,
                "A kernel with a return value must be annotated with a return type, e.g. def func() -> qd.f32",
            ));
        }
        let values = if types.len() == 1 { vec![v] } else { self.unpack(&v)? };
        if values.len() != types.len() {
            return self.err(
                Code::Type,
                format!("the kernel returns {} values, its annotation has {}", values.len(), types.len()),
            );
        }
        let mut parts = Vec::new();
        for ((_, ty), v) in types.iter().zip(&values) {
            parts.push(self.result_value(v, ty)?);
        }
        let result = match parts[..] {
            [one] => one,
            _ => self.b.push(Op::MakeStruct(parts), self.ret.clone()),
        };
        self.b.push(Op::Return(Some(result)), Type::Unit);
        self.frame().returned = Some(Value::None);
        Ok(())
    }

    /// A value returned as the annotated type: shapes must agree, scalars convert.
    pub(super) fn result_value(&mut self, v: &Value, ty: &Type) -> Result<ValueId> {
        let found = match v.items() {
            Some(items) if ty.is_tensor() => {
                let t = self.make_tensor(items, None)?;
                return self.checked_result(t, ty);
            }
            _ => self.try_rt(v)?,
        };
        match found {
            Some(value) => self.checked_result(value, ty),
            None => {
                let what = self.describe(v);
                self.err(Code::Compilation, format!("Return type error: expected {ty}, got {what}"))
            }
        }
    }

    fn checked_result(&mut self, value: ValueId, ty: &Type) -> Result<ValueId> {
        let found = self.b.ty(value).clone();
        if found == *ty {
            return Ok(value);
        }
        let float_to_int = found.scalar().is_some_and(Scalar::is_float) && ty.scalar().is_some_and(|s| !s.is_float());
        if found.shape() != ty.shape()
            || found.scalar().is_none()
            || ty.scalar().is_none()
            || (ty.is_tensor() && float_to_int)
        {
            return self.err(Code::Type, format!("Return type mismatch: expected {ty}, got {found}"));
        }
        Ok(self.b.cast(value, ty.scalar().unwrap_or(Scalar::F32)))
    }

    fn lower_assert(&mut self, test: &Expr, message: Option<&Expr>) -> Result<()> {
        let cond = self.lower_expr(test)?;
        self.b.span = test.span;
        let parts = match message {
            Some(m) => {
                let m = self.lower_expr(m)?;
                self.text_of(&m)?
            }
            None => vec![octants_ir::TextPart::Text(self.source_text(test.span))],
        };
        if !self.options.debug {
            return Ok(());
        }
        let cond = self.condition(&cond)?;
        self.b.push(Op::Assert(cond, parts), Type::Unit);
        Ok(())
    }

    /// The user's text of a span.
    pub(super) fn source_text(&self, span: Span) -> String {
        self.sources
            .get(span.file)
            .and_then(|f| f.text.get(span.start as usize..span.end as usize))
            .unwrap_or_default()
            .to_owned()
    }

    /// A scalar truth value at run time.
    pub(super) fn condition(&mut self, v: &Value) -> Result<ValueId> {
        match v {
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
                let truth = match v {
                    Value::Bool(b) => *b,
                    Value::Int(i) => *i != 0,
                    Value::Float(f) => *f != 0.0,
                    _ => false,
                };
                Ok(self.b.int(i64::from(truth), Scalar::U1))
            }
            _ if v.is_compile_time() => {
                let truth = self.compile_time_truth(v, "a condition")?;
                Ok(self.b.int(i64::from(truth), Scalar::U1))
            }
            _ => {
                let v = self.rt(v)?;
                arith::to_condition(&mut self.b, v)
            }
        }
    }

    // `with qd.stream_parallel():`

    /// S9: all top-level statements of a kernel are `stream_parallel` blocks, or none is.
    fn check_stream_blocks(&mut self, body: &[Stmt]) -> Result<()> {
        if !matches!(self.frame_ref().ret, ReturnMode::Kernel(_)) {
            return Ok(());
        }
        let is_block = |s: &Stmt| matches!(s.kind, StmtKind::With(..));
        if !body.iter().any(is_block) {
            return Ok(());
        }
        for s in body {
            let compile_time = match &s.kind {
                StmtKind::Expr(e) => matches!(e.kind, ExprKind::Str(_)),
                StmtKind::Assign(_, v) => is_static_call(v),
                StmtKind::Pass => true,
                _ => false,
            };
            if !is_block(s) && !compile_time {
                return Err(Diagnostic::new(
                    Code::Syntax,
                    s.head(),
                    "When using qd.stream_parallel(), all top-level statements must be 'with qd.stream_parallel():' blocks",
                )
                .with_hint("move non-parallel code to a separate kernel"));
            }
        }
        Ok(())
    }

    fn lower_with(&mut self, items: &[(Expr, Option<Expr>)], body: &[Stmt]) -> Result<Flow> {
        let [(item, target)] = items else {
            return self.err(Code::Syntax, "'with' in Quadrants kernels only supports a single context manager");
        };
        let ExprKind::Call(func, arguments) = &item.kind else {
            return self.err(Code::Syntax, "'with' in Quadrants kernels requires a call expression");
        };
        let callee = self.lower_expr(func)?;
        let is_stream_parallel = matches!(&callee, Value::Obj(o)
            if matches!(self.world.entity(*o), Entity::Builtin(n) if n == "stream_parallel"));
        if !is_stream_parallel {
            return self.err(Code::Syntax, "'with' in Quadrants kernels only supports qd.stream_parallel()");
        }
        if target.is_some() {
            return self.err(Code::Syntax, "'with ... as ...' is not supported in Quadrants kernels");
        }
        if self.group.is_some() {
            return self.err(Code::Syntax, "Nested 'with qd.stream_parallel()' blocks are not supported");
        }
        if !matches!(self.frame_ref().ret, ReturnMode::Kernel(_)) {
            return self.err(Code::Syntax, "qd.stream_parallel() can only be used inside @qd.kernel, not @qd.func");
        }
        // Directly in the kernel's body: not in a loop or a branch, unrolled and compile-time ones included.
        let stands_in_body = self.parsed.get(&self.kernel_obj).is_some_and(|p| {
            p.body.iter().any(|s| matches!(&s.kind, StmtKind::With(i, _) if std::ptr::eq(i.as_slice(), items)))
        });
        if !stands_in_body {
            return self.err(Code::Syntax, "qd.stream_parallel() must stand at the top level of the kernel");
        }
        if !arguments.positional.is_empty()
            || arguments.keywords.iter().any(|(n, _)| n.as_deref() != Some("allow_overlap"))
        {
            return self.err(Code::Syntax, "qd.stream_parallel() takes only `allow_overlap=`");
        }
        self.next_group += 1;
        let group = self.next_group - 1;
        self.group = Some(group);
        let start = self.b.body.block(self.b.cursor()).len();
        let flow = self.scoped(|s| s.lower_stmts(body));
        self.group = None;
        match flow? {
            Flow::Return => self.err(Code::Syntax, "`return` is not supported in a kernel with qd.stream_parallel()"),
            flow => {
                self.enclose_serial_end(start, group);
                Ok(flow)
            }
        }
    }

    /// Statements after the last parallel loop of a group become one loop of one iteration, since only loops name their group.
    fn enclose_serial_end(&mut self, start: usize, group: u32) {
        let cursor = self.b.cursor();
        let of_group = |v: &ValueId| match &self.b.body.inst(*v).op {
            Op::For(l) => l.parallel.as_ref().is_some_and(|c| c.group == Some(group)),
            _ => false,
        };
        let insts = self.b.body.block(cursor);
        let from = insts[start..].iter().rposition(of_group).map_or(start, |i| start + i + 1);
        if insts[from..].iter().all(|v| self.b.body.inst(*v).op.is_pure()) {
            return;
        }
        let tail = self.b.body.blocks[cursor.index()].split_off(from);
        let block = self.b.body.add_block();
        self.b.body.blocks[block.index()] = tail;
        let config = LoopConfig { serialize: true, group: Some(group), ..LoopConfig::default() };
        let l = ForLoop { dims: Vec::new(), body: block, parallel: Some(config), reductions: Vec::new() };
        self.b.push(Op::For(Box::new(l)), Type::Unit);
    }
}

/// The low bits of `v` as type `s`, sign- or zero-extended.
pub(super) fn wrap(v: i64, s: Scalar) -> i64 {
    match s {
        Scalar::I8 => i64::from(v as i8),
        Scalar::U8 => i64::from(v as u8),
        Scalar::I16 => i64::from(v as i16),
        Scalar::U16 => i64::from(v as u16),
        Scalar::I32 => i64::from(v as i32),
        Scalar::U32 => i64::from(v as u32),
        _ => v,
    }
}
