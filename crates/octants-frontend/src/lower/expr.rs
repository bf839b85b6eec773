//! Expressions: names, literals, operators, attributes, comprehensions.

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{Op, Scalar, Type};

use super::Lowerer;
use crate::arith;
use crate::arith::type_name;
use crate::ast::{Comparison, Expr, ExprKind, Generator, Operator, UnaryOperator};
use crate::syntax_facts::last_write;
use crate::value::{ArrayView, Value};
use crate::world::{Entity, HostValue};

impl Lowerer<'_> {
    pub(super) fn lower_expr(&mut self, e: &Expr) -> Result<Value> {
        let v = self.lower_whole(e)?;
        Ok(self.plain(v))
    }

    /// The same; members of enumerations stay members.
    pub(super) fn lower_whole(&mut self, e: &Expr) -> Result<Value> {
        let outer = std::mem::replace(&mut self.b.span, e.span);
        let v = self.lower_expr_inner(e)?;
        self.b.span = outer;
        Ok(v)
    }

    pub(super) fn lower_exprs(&mut self, es: &[Expr]) -> Result<Vec<Value>> {
        let mut out = Vec::with_capacity(es.len());
        let writes = last_write(es.iter());
        for (i, e) in es.iter().enumerate() {
            match &e.kind {
                ExprKind::Starred(inner) => {
                    let v = self.lower_expr(inner)?;
                    out.extend(self.unpack(&v)?);
                }
                _ => {
                    let v = self.lower_item(e)?;
                    // Read before a later item may change it.
                    out.push(if i < writes { self.detach_deep(v)? } else { v });
                }
            }
        }
        Ok(out)
    }

    fn lower_expr_inner(&mut self, e: &Expr) -> Result<Value> {
        self.ensure_stack(|lowerer| lowerer.lower_expr_here(e))
    }

    fn lower_expr_here(&mut self, e: &Expr) -> Result<Value> {
        Ok(match &e.kind {
            ExprKind::Name(name) => self.lower_name(name)?,
            ExprKind::None => Value::None,
            ExprKind::Bool(b) => Value::Bool(*b),
            ExprKind::Int(i) => Value::Int(*i),
            ExprKind::Float(f) => Value::Float(*f),
            ExprKind::Str(s) => Value::str(s),
            ExprKind::FString(parts) => self.lower_fstring(parts)?,
            ExprKind::Tuple(items) => Value::tuple(self.lower_exprs(items)?),
            ExprKind::List(items) => Value::list(self.lower_exprs(items)?),
            ExprKind::Dict(items) => self.lower_dict(items)?,
            ExprKind::ListComp(item, generators) => {
                let mut out = Vec::new();
                self.comprehend(generators, &mut |s| {
                    let v = s.lower_item(item)?;
                    // The loop variables are compile-time values. Items are detached from later changes.
                    out.push(s.detach_deep(v)?);
                    Ok(())
                })?;
                Value::list(out)
            }
            ExprKind::DictComp(key, value, generators) => self.lower_dict_comprehension(key, value, generators)?,
            ExprKind::Set(items) => self.lower_set(items)?,
            ExprKind::Unary(op, a) => {
                let a = self.lower_expr(a)?;
                self.unary_value(*op, &a)?
            }
            ExprKind::Binary(op, l, r) => {
                let mut l = self.lower_whole(l)?;
                if matches!(l, Value::Var(_) | Value::Place(_)) && crate::syntax_facts::may_write(r) {
                    l = Value::Rt(self.rt(&l)?);
                }
                let r = self.lower_whole(r)?;
                self.combine(*op, l, r)?
            }
            ExprKind::And(operands) => self.lower_logic(operands, true)?,
            ExprKind::Or(operands) => self.lower_logic(operands, false)?,
            ExprKind::Compare(left, rest) => self.lower_compare(left, rest)?,
            ExprKind::IfExp(test, then, orelse) => self.lower_if_exp(test, then, orelse)?,
            ExprKind::Named(target, value) => {
                let is_static = crate::syntax_facts::is_static_call(value);
                let v = self.lower_expr(value)?;
                self.assign(target, v, is_static)?;
                self.lower_expr(target)?
            }
            ExprKind::Call(func, arguments) => self.lower_call(func, arguments)?,
            ExprKind::Attribute(base, name) => {
                let base = self.lower_whole(base)?;
                self.attribute(&base, name)?
            }
            ExprKind::Subscript(base, index) => {
                let base = self.lower_named_array(base)?;
                let index = self.lower_index(index)?;
                self.subscript(&base, index)?
            }
            ExprKind::Slice(a, b, c) => {
                let mut part = |p: &Option<Box<Expr>>| match p {
                    Some(e) => self.lower_expr(e),
                    None => Ok(Value::None),
                };
                Value::Slice(std::rc::Rc::new([part(a)?, part(b)?, part(c)?]))
            }
            ExprKind::Starred(_) => return self.err(Code::Syntax, "unpacking with `*` is not supported here"),
            ExprKind::Unsupported(what) => return Err(self.unsupported(what, e.span)),
        })
    }

    /// The base of a subscript. An array without a name gets the name that the user gives it here.
    pub(super) fn lower_named_array(&mut self, e: &Expr) -> Result<Value> {
        let v = self.lower_expr(e)?;
        if let Value::Obj(_) = &v
            && matches!(e.kind, ExprKind::Name(_) | ExprKind::Attribute(..))
            && let Some(buffer) = self.as_array(&v).map_err(|d| Box::new(Diagnostic { span: Some(e.span), ..*d }))?
            && self.buffers[buffer.index()].name.is_empty()
        {
            self.buffers[buffer.index()].name = self.source_text(e.span);
        }
        Ok(v)
    }

    pub(super) fn lower_index(&mut self, index: &Expr) -> Result<Vec<Value>> {
        match &index.kind {
            ExprKind::Tuple(items) => self.lower_exprs(items),
            _ => Ok(vec![self.lower_expr(index)?]),
        }
    }

    fn lower_name(&mut self, name: &str) -> Result<Value> {
        if let Some(b) = self.lookup(name) {
            return Ok(b.value.clone());
        }
        let func = self.frame_ref().func;
        match self.world.global(func, name) {
            Ok(Some(obj)) => {
                self.check_outer_name(name, obj)?;
                Ok(self.lift(obj))
            }
            Ok(None) => {
                let d = Diagnostic::new(Code::Name, self.b.span, format!("Name \"{name}\" is not defined"));
                Err(match self.frame_ref().left.get(name) {
                    Some(_) => d.with_hint(format!(
                        "`{name}` is defined only inside an `if` or a loop: assign a value before it"
                    )),
                    None => d,
                })
            }
            Err(e) => Err(self.host_error(e)),
        }
    }

    pub(super) fn comprehend(
        &mut self,
        generators: &[Generator],
        each: &mut dyn FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let Some((first, rest)) = generators.split_first() else { return each(self) };
        self.static_depth += 1;
        let iter = self.lower_expr(&first.iter);
        self.static_depth -= 1;
        let items = self.compile_time_items(&iter?)?;
        for item in items {
            self.scoped(|s| {
                s.bind_target(&first.target, item)?;
                for c in &first.conditions {
                    s.static_depth += 1;
                    let c = s.lower_expr(c);
                    s.static_depth -= 1;
                    if !s.compile_time_truth(&c?, "the condition of a comprehension")? {
                        return Ok(());
                    }
                }
                s.comprehend(rest, each)
            })?;
        }
        Ok(())
    }

    pub(super) fn bind_target(&mut self, target: &Expr, value: Value) -> Result<()> {
        match &target.kind {
            ExprKind::Name(n) => {
                self.bind_value(n, value);
                Ok(())
            }
            ExprKind::Tuple(targets) | ExprKind::List(targets) => {
                let items = self.unpack(&value)?;
                if items.len() != targets.len() {
                    let (wanted, found) = (targets.len(), items.len());
                    return self.err(
                        Code::Syntax,
                        format!("The number of targets is not equal to value length: {wanted} targets, {found} values"),
                    );
                }
                for (t, v) in targets.iter().zip(items) {
                    self.bind_target(t, v)?;
                }
                Ok(())
            }
            _ => self.err(Code::Syntax, "a loop variable must be a name"),
        }
    }

    pub(super) fn unary_value(&mut self, op: UnaryOperator, a: &Value) -> Result<Value> {
        if let Some(v) = self.fold_unary(op, a)? {
            return Ok(v);
        }
        let a = self.rt(a)?;
        Ok(Value::Rt(arith::unary(&mut self.b, &self.options, op, a)?))
    }

    pub(super) fn binary_value(&mut self, op: Operator, l: &Value, r: &Value) -> Result<Value> {
        if let Some(v) = self.fold_or_multiply_tiles(op, l, r)? {
            return Ok(v);
        }
        let [l, r] = [self.operand(l, op.symbol())?, self.operand(r, op.symbol())?];
        Ok(Value::Rt(arith::binary(&mut self.b, &self.options, op, l, r)?))
    }

    fn operand(&mut self, v: &Value, op: &str) -> Result<octants_ir::ValueId> {
        match self.try_rt(v)? {
            Some(x) if !matches!(self.b.ty(x), Type::Struct(_) | Type::Unit) => Ok(x),
            _ => {
                let what = self.describe(v);
                self.err(Code::Type, format!("unsupported operand type for `{op}`: {what}"))
            }
        }
    }

    fn lower_logic(&mut self, operands: &[Expr], is_and: bool) -> Result<Value> {
        let Some((last, init)) = operands.split_last() else {
            return self.err(Code::Syntax, "`and` and `or` need operands");
        };
        let Some((first, middle)) = init.split_first() else { return self.lower_expr(last) };
        let rest: Vec<&Expr> = middle.iter().chain(std::iter::once(last)).collect();
        let v = self.lower_expr(first)?;
        self.logic_rest(v, &rest, is_and)
    }

    fn logic_rest(&mut self, left: Value, rest: &[&Expr], is_and: bool) -> Result<Value> {
        let Some((next, more)) = rest.split_first() else { return Ok(left) };
        if left.is_compile_time()
            && let Ok(truth) = self.compile_time_truth(&left, "a logical expression")
        {
            if truth != is_and {
                return Ok(if self.static_depth > 0 { left } else { Value::Bool(truth) });
            }
            let v = self.lower_expr(next)?;
            return self.logic_rest(v, more, is_and);
        }
        let l = self.rt(&left)?;
        if self.b.ty(l).is_tensor() || !self.options.short_circuit {
            let r = self.lower_expr(next)?;
            let r = self.rt(&r)?;
            let name = if is_and { "logical_and" } else { "logical_or" };
            let name = if self.b.ty(l).is_tensor() {
                name
            } else if is_and {
                "bit_and"
            } else {
                "bit_or"
            };
            let v = match arith::math(&mut self.b, &self.options, name, &[l, r]) {
                Some(v) => v?,
                None => return Err(arith::unsupported(&self.b, if is_and { "and" } else { "or" }, l, r)),
            };
            return self.logic_rest(Value::Rt(v), more, is_and);
        }
        // result = left; if left (or not left): result = right, in the type that both promote to.
        let cond = arith::to_condition(&mut self.b, if is_and { "and" } else { "or" }, l)?;
        let span = self.b.span;
        let (block, r) = self.in_block(|s| {
            let r = s.lower_expr(next)?;
            s.rt(&r)
        })?;
        self.b.span = span;
        let (ty, symbol) = (self.b.ty(l).clone(), if is_and { "&&" } else { "||" });
        let ty = match (ty.scalar(), self.b.ty(r)) {
            (Some(ls), Type::Scalar(rs)) if rs.is_int() => Type::Scalar(ls.promote(*rs)),
            _ => return Err(arith::unsupported(&self.b, symbol, l, r)),
        };
        let left = arith::assign_cast(&mut self.b, l, &ty)?;
        let result = self.new_local(if is_and { "and" } else { "or" }, left);
        let back = self.b.set_cursor(block);
        let right = arith::assign_cast(&mut self.b, r, &ty)?;
        let addr = self.b.local_addr(result);
        self.b.store(addr, right);
        self.b.set_cursor(back);
        let empty = self.b.body.add_block();
        let (a, b) = if is_and { (block, empty) } else { (empty, block) };
        self.b.push(Op::If(cond, a, b), Type::Unit);
        self.logic_rest(Value::Var(result), more, is_and)
    }

    fn lower_compare(&mut self, left: &Expr, rest: &[(Comparison, Expr)]) -> Result<Value> {
        let writes = last_write(std::iter::once(left).chain(rest.iter().map(|(_, e)| e)));
        let mut l = self.lower_expr(left)?;
        if writes > 0 {
            l = self.detach(l)?;
        }
        let mut result: Option<Value> = None;
        for (i, (op, e)) in rest.iter().enumerate() {
            let mut r = self.lower_expr(e)?;
            if i + 1 < writes {
                r = self.detach(r)?;
            }
            let v = self.compare_value(*op, &l, &r)?;
            result = Some(match result {
                None => v,
                Some(Value::Bool(false)) => Value::Bool(false),
                Some(Value::Bool(true)) => v,
                Some(before) => {
                    let a = self.rt(&before)?;
                    let b = self.rt(&v)?;
                    match arith::math(&mut self.b, &self.options, "logical_and", &[a, b]) {
                        Some(v) => Value::Rt(v?),
                        None => return self.err(Code::Type, "these comparisons cannot be chained"),
                    }
                }
            });
            l = r;
        }
        Ok(result.unwrap_or(Value::Bool(true)))
    }

    pub(super) fn compare_value(&mut self, op: Comparison, l: &Value, r: &Value) -> Result<Value> {
        if matches!(op, Comparison::Is | Comparison::IsNot) && self.static_depth == 0 {
            let hint = "use `==`, or evaluate it at compile time: `qd.static(x is None)`";
            return Err(Diagnostic::new(
                Code::Syntax,
                self.b.span,
                format!("Operator \"{}\" in Quadrants scope is not supported.", op.symbol()),
            )
            .with_hint(hint));
        }
        if matches!(op, Comparison::In | Comparison::NotIn) && self.static_depth == 0 {
            let name = if op == Comparison::In { "In" } else { "NotIn" };
            return self.err(Code::Syntax, format!("\"{name}\" is only supported inside `qd.static`."));
        }
        if let Some(v) = self.fold_compare(op, l, r)? {
            return Ok(v);
        }
        let l = self.operand(l, op.symbol())?;
        let r = self.operand(r, op.symbol())?;
        let op = match op {
            Comparison::Eq => arith::Comparison::Eq,
            Comparison::Ne => arith::Comparison::Ne,
            Comparison::Lt => arith::Comparison::Lt,
            Comparison::Le => arith::Comparison::Le,
            Comparison::Gt => arith::Comparison::Gt,
            Comparison::Ge => arith::Comparison::Ge,
            Comparison::Is | Comparison::IsNot | Comparison::In | Comparison::NotIn => {
                return Err(self.undecided(op));
            }
        };
        Ok(Value::Rt(arith::compare(&mut self.b, &self.options, op, l, r)?))
    }

    fn lower_if_exp(&mut self, test: &Expr, then: &Expr, orelse: &Expr) -> Result<Value> {
        let is_static = crate::syntax_facts::is_static_call(test);
        let cond = self.lower_expr(test)?;
        if is_static || (cond.is_compile_time() && self.static_depth > 0) {
            let truth = self.compile_time_truth(&cond, "a conditional expression")?;
            return self.lower_whole(if truth { then } else { orelse });
        }
        if cond.is_compile_time() {
            let truth = self.compile_time_truth(&cond, "a conditional expression")?;
            let (taken, other) = if truth { (then, orelse) } else { (orelse, then) };
            return self.lower_decided(taken, other);
        }
        let cond_value = self.rt(&cond)?;
        if self.b.ty(cond_value).is_tensor() {
            let ty = type_name(self.b.ty(cond_value));
            let message = format!("the condition of a conditional expression must be a scalar, not {ty}");
            return Err(Diagnostic::new(Code::Syntax, test.span, message)
                .with_hint("use `qd.select(condition, x, y)` to select component by component"));
        }
        let cond = arith::to_condition(&mut self.b, "if", cond_value)?;
        // Both sides are lowered in separate blocks: only one of them runs.
        let (block_a, a) = self.in_block(|s| {
            let v = s.lower_expr(then)?;
            s.rt(&v)
        })?;
        let (block_b, b) = self.in_block(|s| {
            let v = s.lower_expr(orelse)?;
            s.rt(&v)
        })?;
        let (ta, tb) = (self.b.ty(a).clone(), self.b.ty(b).clone());
        let ty = if ta == tb {
            ta
        } else {
            match (ta.scalar(), tb.scalar()) {
                (Some(sa), Some(sb)) if ta.shape() == tb.shape() => ta.with_scalar(sa.promote(sb)),
                (Some(sa), Some(sb)) if !ta.is_tensor() => tb.with_scalar(sa.promote(sb)),
                (Some(sa), Some(sb)) if !tb.is_tensor() => ta.with_scalar(sa.promote(sb)),
                _ => {
                    return self
                        .err(Code::Type, format!("Cannot broadcast tensor to tensor: the two sides of a conditional expression are {ta} and {tb}", ta = type_name(&ta), tb = type_name(&tb)));
                }
            }
        };
        let local = self.b.body.add_local("if", ty.clone());
        for (block, v) in [(block_a, a), (block_b, b)] {
            let back = self.b.set_cursor(block);
            let mut v = v;
            if ty.is_tensor() && !self.b.ty(v).is_tensor() {
                v = self.b.splat(v, &ty);
            }
            let v = arith::assign_cast(&mut self.b, v, &ty)?;
            let addr = self.b.local_addr(local);
            self.b.store(addr, v);
            self.b.set_cursor(back);
        }
        self.b.push(Op::If(cond, block_a, block_b), Type::Unit);
        Ok(Value::Var(local))
    }

    /// A conditional expression without `qd.static` whose condition is known: the side that is taken, in the type that
    /// both promote to. The other side only contributes its type, and never runs.
    fn lower_decided(&mut self, taken: &Expr, other: &Expr) -> Result<Value> {
        let value = self.lower_whole(taken)?;
        let Some(Type::Scalar(from)) = self.runtime_type(&value).filter(|_| !value.is_compile_time()) else {
            return Ok(value);
        };
        let value = Value::Rt(self.rt(&value)?);
        let span = self.b.span;
        let looked_at = self.in_block(|s| {
            let v = s.lower_expr(other)?;
            Ok(s.runtime_type(&v))
        });
        self.b.span = span;
        // Errors in a branch that is not taken are ignored.
        let Ok((block, ty)) = looked_at else { return Ok(value) };
        let never = self.b.int(0, Scalar::U1);
        let empty = self.b.body.add_block();
        self.b.push(Op::If(never, block, empty), Type::Unit);
        match ty {
            Some(Type::Scalar(to)) => Ok(Value::Rt(self.cast_value(&value, from.promote(to))?)),
            _ => Ok(value),
        }
    }

    // Attributes.

    pub(super) fn attribute(&mut self, base: &Value, name: &str) -> Result<Value> {
        if let Value::Tuple(items) = base
            && let Some((_, obj)) = self.named_tuples.iter().find(|(named, _)| std::rc::Rc::ptr_eq(named, items))
        {
            return self.host_attribute(*obj, name);
        }
        if let Value::Tuple(items) = base
            && let Some((_, obj)) = self.named_variables.iter().find(|(named, _)| std::rc::Rc::ptr_eq(named, items))
        {
            let (obj, items) = (*obj, items.clone());
            if let Some(fields) = self.world.attribute(obj, "_fields").map_err(|e| self.host_error(e))? {
                let is_it = |f: &Value| matches!(f, Value::Str(s) if **s == *name);
                if let Some(i) = self.lift(fields).items().and_then(|names| names.iter().position(is_it)) {
                    return Ok(items[i].clone());
                }
            }
            return self.host_attribute(obj, name);
        }
        if let Some(v) = self.tensor_attribute(base, name)? {
            return Ok(v);
        }
        if let Some(v) = self.struct_attribute(base, name)? {
            return Ok(v);
        }
        if let Some(v) = self.array_attribute(base, name)? {
            return Ok(v);
        }
        match base {
            Value::Element(element) => self.element_attribute(element, name),
            Value::Neighbors(neighbors) => self.neighbors_attribute(neighbors, name),
            Value::Obj(obj) => self.host_attribute(*obj, name),
            // Numbers have Python's methods: `n.bit_length()`.
            Value::Bool(b) => self.host_attribute(self.world.make(HostValue::Bool(*b)), name),
            Value::Int(i) => self.host_attribute(self.world.make(HostValue::Int(*i)), name),
            Value::Float(f) => self.host_attribute(self.world.make(HostValue::Float(*f)), name),
            Value::Str(_) | Value::List(_) | Value::Dict(_) | Value::Tuple(_) | Value::Static(_) => {
                Ok(Value::Method(std::rc::Rc::new((base.clone(), name.to_owned()))))
            }
            _ => {
                let what = self.describe(base);
                self.err(Code::Type, format!("{what} has no attribute `{name}`"))
            }
        }
    }

    pub(super) fn host_attribute(&mut self, obj: crate::world::Obj, name: &str) -> Result<Value> {
        match self.world.attribute(obj, name) {
            Ok(Some(found)) => {
                self.check_outer_attribute(obj, name, found)?;
                if let Some((index, path)) = self.reached.get(&obj).cloned() {
                    let mut path = path;
                    path.push(name.to_owned());
                    self.reached.entry(found).or_insert((index, path));
                }
                Ok(self.lift(found))
            }
            Ok(None) => Err(self.no_attribute(obj, name)),
            Err(e) => match self.property_function(obj, name) {
                Some(getter) => self.call_object(getter, vec![Value::Obj(obj)], Vec::new()),
                None => Err(self.host_error(e)),
            },
        }
    }

    /// Attributes of fields and arrays that are known to the compiler.
    fn array_attribute(&mut self, base: &Value, name: &str) -> Result<Option<Value>> {
        if let Value::View(view) = base {
            return match self.view_attribute(view, base, name)? {
                None if matches!(name, "dtype" | "element_shape" | "n" | "m" | "ndim") => {
                    self.attribute(&Value::Array(view.array), name).map(Some)
                }
                found => Ok(found),
            };
        }
        if name == "fill" && self.as_array(base)?.is_some() {
            return Ok(Some(Value::Method(std::rc::Rc::new((base.clone(), name.to_owned())))));
        }
        if name == "size" {
            // The number of elements, if there is one axis.
            let Value::Array(b) = *base else { return Ok(None) };
            if self.buffers[b.index()].ndim == 1 {
                let shape = self.attribute(base, "shape")?;
                return self.subscript(&shape, vec![Value::Int(0)]).map(Some);
            }
        }
        if !matches!(name, "shape" | "dtype" | "element_shape" | "n" | "m" | "ndim") {
            if let Value::Array(b) = base {
                if let Some(obj) = self.buffer_objects[b.index()] {
                    return Ok(Some(self.host_attribute(obj, name)?));
                }
                if name == "grad"
                    && let Some(grad) = self.gradient(*b)
                {
                    return Ok(Some(Value::Array(grad)));
                }
                if name == "grad" {
                    return self.err(Code::Type, format!("`{}` has no gradient", self.buffers[b.index()].name));
                }
                if matches!(name, "offset" | "get_ndarray" | "arr") {
                    if !self.view_arrays.contains(b) {
                        return Err(self.no_view(*b, name));
                    }
                    let view = ArrayView { array: *b, offset: None, size: None };
                    return self.view_attribute(&view, base, name);
                }
                return Ok(Some(Value::Method(std::rc::Rc::new((base.clone(), name.to_owned())))));
            }
            return Ok(None);
        }
        let is_array = match base {
            Value::Array(_) => true,
            Value::Obj(o) => {
                let entity = self.world.entity(*o);
                matches!(entity, Entity::Field(_) | Entity::ReorderedField { .. } | Entity::Ndarray(_))
            }
            _ => false,
        };
        if !is_array {
            return Ok(None);
        }
        let Some(buffer) = self.as_array(base)? else { return Ok(None) };
        let decl = self.buffers[buffer.index()].clone();
        let constant = |i: u64| Value::Int(i128::from(i));
        Ok(Some(match name {
            "shape" => {
                let extent = |axis| match self.extent(buffer, axis) {
                    // As a run-time value it is i64 if a literal would have no type; at compile time it stays a number.
                    Value::Int(n) if i32::try_from(n).is_err() && self.static_depth == 0 => {
                        Value::Rt(self.b.int(n as i64, octants_ir::Scalar::I64))
                    }
                    n => n,
                };
                Value::tuple((0..decl.ndim).map(extent).collect())
            }
            "ndim" => constant(u64::from(decl.ndim)),
            // Structs have none.
            "element_shape" if matches!(decl.elem, Type::Struct(_)) => Value::None,
            "element_shape" => Value::tuple(decl.elem.shape().iter().map(|n| constant(u64::from(*n))).collect()),
            "n" => constant(u64::from(decl.elem.shape().first().copied().unwrap_or(1))),
            "m" => constant(u64::from(decl.elem.shape().get(1).copied().unwrap_or(1))),
            _ => match self.buffer_objects[buffer.index()] {
                Some(obj) => self.host_attribute(obj, "dtype")?,
                None => return Ok(Some(self.dtype_value(decl.elem.scalar().unwrap_or(octants_ir::Scalar::F32))?)),
            },
        }))
    }
}
