//! `for` loops: ranges, `ndrange`, fields and arrays, `grouped`, and unrolled `qd.static` loops.

use std::collections::HashSet;

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{AutodiffMode, BufferId, Const, ForLoop, Layout, LoopConfig, Op, Range, Scalar, Type, ValueId};

use super::loop_box::{BoxKind, LoopBox};
use super::word_loops::WordElements;
use super::{Binding, Flow, LoopKind, Lowerer};
use crate::arith;
use crate::arith::type_name;
use crate::ast::{Expr, ExprKind, Stmt};
use crate::syntax_facts;
use crate::value::{Ndrange, Value};
use crate::world::Entity;

impl Lowerer<'_> {
    pub(super) fn lower_for(&mut self, target: &Expr, iter: &Expr, body: &[Stmt]) -> Result<Flow> {
        if let ExprKind::IfExp(test, ..) = &iter.kind
            && !syntax_facts::is_static_call(test)
        {
            let message = "Using non static inlined if statement as for-loop iterable is not currently supported.";
            return Err(Diagnostic::new(Code::Syntax, iter.span, message)
                .with_hint("choose at compile time: `... if qd.static(...) else ...`"));
        }
        self.refuse_repeated_targets(target)?;
        self.refuse_nested_decorators(iter)?;
        let mut iterable = self.lower_expr(iter)?;
        self.b.span = iter.span;
        if let Value::Obj(o) = iterable
            && let Some(n) = self.host_ndrange(o)?
        {
            iterable = Value::Ndrange(std::rc::Rc::new(n));
        }
        if let Value::Static(items) = &iterable {
            return self.static_for(target, items.to_vec(), body);
        }
        // The values of `qd.static`, `zip`, `enumerate` and similar functions are unrolled; a list or tuple by name is
        // not.
        if matches!(iter.kind, ExprKind::Call(..))
            && matches!(iterable, Value::List(_) | Value::Tuple(_) | Value::Dict(_) | Value::Str(_) | Value::Obj(_))
        {
            let items = self.compile_time_items(&iterable)?;
            return self.static_for(target, items, body);
        }
        let (config, read_only) = (self.pending_config.take(), self.take_read_only());
        let handles_words = std::mem::take(&mut self.handles_words) && self.options.mode == AutodiffMode::None;
        let Some(bounds) = self.loop_box(&iterable)? else {
            let what = self.describe(&iterable);
            return Err(Diagnostic::new(
                Code::Syntax,
                iter.span,
                format!("Cannot loop over the object {what} in a kernel"),
            )
            .with_hint(
                "loop over `range(...)`, `qd.ndrange(...)`, a field or an array, or unroll with `qd.static(...)`",
            ));
        };
        self.runtime_for(target, bounds, body, (config, handles_words))?;
        self.note_read_only(read_only);
        Ok(Flow::Normal)
    }

    /// Target names of a loop.
    fn loop_targets<'e>(&self, target: &'e Expr) -> Result<Vec<&'e str>> {
        let name = |e: &'e Expr| match &e.kind {
            ExprKind::Name(n) => Ok(n.as_str()),
            _ => Err(Diagnostic::new(Code::Syntax, e.span, "a loop variable must be a name")),
        };
        match &target.kind {
            ExprKind::Tuple(items) | ExprKind::List(items) => items.iter().map(name).collect(),
            _ => Ok(vec![name(target)?]),
        }
    }

    /// Refuses two loop variables with the same name in one loop, except `_`, which nothing reads.
    fn refuse_repeated_targets(&self, target: &Expr) -> Result<()> {
        let (ExprKind::Tuple(items) | ExprKind::List(items)) = &target.kind else { return Ok(()) };
        for (i, item) in items.iter().enumerate() {
            let ExprKind::Name(name) = &item.kind else { continue };
            let before = items[..i].iter().any(|e| matches!(&e.kind, ExprKind::Name(n) if n == name));
            if before && name != "_" {
                let text = format!("Recreating variables is not allowed: this loop has two variables `{name}`");
                return Err(Diagnostic::new(Code::Syntax, item.span, text));
            }
        }
        Ok(())
    }

    /// In Python a loop's variable outlives the loop. Here it does not, so it must not share its name with a variable
    /// that does.
    fn check_loop_variable(&self, name: &str, target: &Expr) -> Result<()> {
        match self.lookup(name) {
            None => return Ok(()),
            Some(Binding { immutable: None, .. }) if name == "_" => return Ok(()),
            Some(_) => {}
        }
        let message =
            format!("Variable '{name}' is already declared in the outer scope and cannot be used as loop variable");
        Err(Diagnostic::new(Code::Syntax, target.span, message).with_hint("give the loop variable another name"))
    }

    /// Checks that `static`, `grouped` and `ndrange` around a loop's iterable occur once each, and in order.
    fn refuse_nested_decorators(&mut self, iter: &Expr) -> Result<()> {
        let ExprKind::Call(_, arguments) = &iter.kind else { return Ok(()) };
        let [only] = &arguments.positional[..] else { return Ok(()) };
        let inner = |name| syntax_facts::is_call_of(only, name);
        let message = match syntax_facts::called_name(iter) {
            Some("static") if inner("static") => "'qd.static' cannot be nested: the loop is unrolled already",
            Some("grouped") if inner("grouped") => "'qd.grouped' cannot be nested: its indices are one vector already",
            Some("grouped") if inner("static") => {
                "'qd.static' is not allowed inside 'qd.grouped': write `qd.static(qd.grouped(...))`"
            }
            Some("ndrange") if ["static", "grouped", "ndrange"].into_iter().any(inner) => {
                "No decorator is allowed inside 'qd.ndrange': its arguments are integers or pairs of integers"
            }
            _ => return Ok(()),
        };
        self.b.span = iter.span;
        self.err(Code::Syntax, message)
    }

    fn static_for(&mut self, target: &Expr, items: Vec<Value>, body: &[Stmt]) -> Result<Flow> {
        if self.options.unrolling_limit > 0 && items.len() > self.options.unrolling_limit as usize {
            let d = Diagnostic::new(
                Code::Syntax,
                target.span,
                format!(
                    "You are unrolling more than {} iterations, so the compile time may be extremely long.",
                    self.options.unrolling_limit
                ),
            )
            .with_hint("use a non-static for loop to decrease the compile time, or disable this warning by qd.init(unrolling_limit=0)");
            self.world.warn(*d);
        }
        let depth = self.frame_ref().control_depth;
        self.frame().loops.push(LoopKind::Static(depth));
        let mut result = Ok(Flow::Normal);
        for item in items {
            let flow = self.scoped(|s| {
                s.bind_target(target, item)?;
                s.lower_stmts(body)
            });
            match flow {
                Ok(Flow::Normal | Flow::Continue) => {}
                Ok(Flow::Break) => break,
                Ok(Flow::Return) => {
                    result = Ok(Flow::Return);
                    break;
                }
                Err(e) => {
                    result = Err(e);
                    break;
                }
            }
        }
        self.frame().loops.pop();
        result
    }

    fn loop_box(&mut self, iterable: &Value) -> Result<Option<LoopBox>> {
        Ok(Some(match iterable {
            Value::Range(bounds) => LoopBox {
                ranges: vec![self.range(&bounds.0, &bounds.1)?],
                position: vec![0],
                grouped: false,
                kind: BoxKind::Range,
                elements: None,
                cells: None,
                visited: None,
            },
            Value::Ndrange(n) if n.dims.is_empty() => {
                return self.err(Code::Syntax, "`qd.ndrange` takes at least one range, unless its indices are grouped");
            }
            Value::Ndrange(n) => self.ndrange_box(n, false)?,
            Value::Grouped(inner) => match &**inner {
                Value::Ndrange(n) => self.ndrange_box(n, true)?,
                other => match self.loop_box(other)? {
                    Some(b) if b.kind == BoxKind::Mesh => {
                        return self
                            .err(Code::Syntax, "`qd.grouped` does not support mesh elements, which have no indices");
                    }
                    Some(b) => LoopBox { grouped: true, ..b },
                    None => return Ok(None),
                },
            },
            other if let Some((begin, end)) = self.visited_range(other)? => LoopBox {
                ranges: vec![self.range(&begin, &end)?],
                position: vec![0],
                grouped: false,
                kind: BoxKind::Mesh,
                elements: None,
                cells: None,
                visited: Some(other.clone()),
            },
            other => {
                let first = match self.as_members(other) {
                    Some(m) if m.is_array => match m.items.first() {
                        Some((_, v)) => v.clone(),
                        None => return Ok(None),
                    },
                    _ => other.clone(),
                };
                if let Some(m) = self.as_members(&first)
                    && m.is_array
                {
                    return self.loop_box(&Value::Members(m));
                }
                let Some(buffer) = self.as_array(&first)? else { return Ok(None) };
                let ndim = self.buffers[buffer.index()].ndim;
                let mut ranges = Vec::new();
                for axis in 0..ndim {
                    let begin = match &self.buffers[buffer.index()].layout {
                        Layout::Dense { offset, .. } => offset[axis as usize],
                        _ => 0,
                    };
                    let end = match self.extent(buffer, axis) {
                        Value::Int(n) => Value::Int(n + i128::from(begin)),
                        n => n,
                    };
                    ranges.push(self.range(&Value::Int(begin.into()), &end)?);
                }
                let cells = self.active_cells(&first)?;
                let position = (0..ranges.len()).collect();
                let (kind, elements) = (BoxKind::Elements, Some(buffer));
                LoopBox { position, ranges, grouped: false, kind, elements, cells, visited: None }
            }
        }))
    }

    /// `x.fill(value)` in a kernel: a loop over all elements, parallel at the top level.
    pub(super) fn fill_array(&mut self, array: &Value, value: &Value) -> Result<Value> {
        let (Some(buffer), Some(mut bounds)) = (self.as_array(array)?, self.loop_box(array)?) else {
            let what = self.describe(array);
            return self.err(Code::Type, format!("{what} cannot be filled"));
        };
        self.list_cells_of(&mut bounds)?;
        let elem = self.buffers[buffer.index()].elem.clone();
        let value = self.value_for(value, &elem)?;
        let config = self.pending_config.take();
        let parallel = self.at_top_level().then(|| LoopConfig { group: self.group, ..config.unwrap_or_default() });
        let span = self.b.span;
        let id = self.b.body.add_inst(Op::Break, Type::Unit, span);
        let (block, ()) = self.in_block(|s| {
            let indices = s.loop_indices(id, &bounds, None);
            s.if_active(&bounds, &indices, |s| {
                let indices: Vec<Value> = indices.iter().map(|i| Value::Rt(*i)).collect();
                let element = s.element(buffer, &indices)?;
                s.store(&element, &Value::Rt(value))
            })
        })?;
        let l = ForLoop { parallel, ..ForLoop::serial(bounds.ranges, block) };
        self.b.body.inst_mut(id).op = Op::For(Box::new(l));
        self.b.place(id);
        Ok(Value::None)
    }

    /// The index box of a host object that a kernel loops over: an `ndrange` created there, or a level of a tree.
    pub(super) fn host_ndrange(&mut self, obj: crate::world::Obj) -> Result<Option<Ndrange>> {
        if self.world.entity(obj) != Entity::Opaque {
            return Ok(None);
        }
        let bounds = self.world.attribute(obj, "_octants_ndrange").map_err(|e| self.host_error(e))?;
        let Some(bounds) = bounds else { return Ok(None) };
        let bounds = self.lift(bounds);
        let parts = self.unpack(&bounds)?;
        let [dims, order] = &parts[..] else { return Ok(None) };
        let dims = self
            .unpack(dims)?
            .iter()
            .map(|d| {
                let pair = self.unpack(d)?;
                match &pair[..] {
                    [a, b] => Ok((a.clone(), b.clone())),
                    _ => self.err(Code::Syntax, "an axis of qd.ndrange takes one bound or a pair of bounds"),
                }
            })
            .collect::<Result<Vec<_>>>()?;
        let order = self
            .unpack(order)?
            .iter()
            .map(|v| match v {
                Value::Int(i) => *i as usize,
                _ => 0,
            })
            .collect();
        Ok(Some(Ndrange { dims, order, level: Some(obj) }))
    }

    fn ndrange_box(&mut self, n: &Ndrange, grouped: bool) -> Result<LoopBox> {
        let mut ranges = Vec::new();
        let mut position = vec![0; n.dims.len()];
        for (level, &axis) in n.order.iter().enumerate() {
            ranges.push(self.range(&n.dims[axis].0, &n.dims[axis].1)?);
            position[axis] = level;
        }
        let cells = match n.level {
            Some(level) => self.active_cells(&Value::Obj(level))?,
            None => None,
        };
        Ok(LoopBox { ranges, position, grouped, kind: BoxKind::Ndrange, elements: None, cells, visited: None })
    }

    /// The extent of an array's axis: known at compile time for fields; i64 if i32 cannot represent it.
    pub(super) fn extent(&mut self, buffer: BufferId, axis: u32) -> Value {
        let s = if self.wide_arrays.contains(&buffer) { Scalar::I64 } else { Scalar::I32 };
        match &self.buffers[buffer.index()].layout {
            Layout::Dense { shape, .. } => Value::Int(shape[axis as usize].into()),
            _ => Value::Rt(self.b.push(Op::Shape(buffer, axis), s.into())),
        }
    }

    /// The range between two bounds. Its index is i64 if a bound is a 64-bit integer, and i32 otherwise.
    fn range(&mut self, begin: &Value, end: &Value) -> Result<Range> {
        let (begin, end) = (self.bound(begin)?, self.bound(end)?);
        let wide = [begin, end].iter().any(|v| *self.b.ty(*v) == Type::Scalar(Scalar::I64));
        let s = if wide { Scalar::I64 } else { Scalar::I32 };
        Ok(Range { begin: self.bound_as(begin, s), end: self.bound_as(end, s) })
    }

    fn bound_as(&mut self, v: ValueId, s: Scalar) -> ValueId {
        match self.b.body.as_const(v) {
            Some(Const::Int(i)) if *self.b.ty(v) != s.into() => self.b.int(i, s),
            _ => self.b.cast(v, s),
        }
    }

    /// A loop bound, i32 or i64. A constant is i32 if it fits, regardless of the type of integer literals.
    fn bound(&mut self, v: &Value) -> Result<ValueId> {
        if let Value::Int(i) = v {
            if let Ok(i) = i32::try_from(*i) {
                return Ok(self.b.int(i.into(), Scalar::I32));
            }
            if let Ok(i) = i64::try_from(*i) {
                return Ok(self.b.int(i, Scalar::I64));
            }
        }
        let v = self.rt(v)?;
        let Type::Scalar(s) = *self.b.ty(v) else {
            let ty = type_name(self.b.ty(v));
            return self.err(Code::Type, format!("a loop bound must be a number, not {ty}"));
        };
        if matches!(s, Scalar::I64 | Scalar::U64) {
            return Ok(self.b.cast(v, Scalar::I64));
        }
        if s.is_float() || s == Scalar::U32 {
            let d = Diagnostic::new(
                Code::Type,
                self.b.span,
                format!("Casting range_for boundary values from {s} to i32, which may cause numerical issues"),
            );
            self.world.warn(*d);
        }
        arith::cast(&mut self.b, v, Scalar::I32)
    }

    /// Whether loops over active cells iterate over a list of them. Reverse mode runs loops in another order than the
    /// stores that activate cells. So its loops run over all cells, and skip the inactive ones.
    fn lists_cells(&self) -> bool {
        match self.options.mode {
            AutodiffMode::None | AutodiffMode::Forward | AutodiffMode::Validation => true,
            AutodiffMode::Reverse | AutodiffMode::Trips | AutodiffMode::Reads => false,
        }
    }

    /// Makes a loop over active cells iterate over the list of the cells that are active before it.
    fn list_cells_of(&mut self, bounds: &mut LoopBox) -> Result<()> {
        let lists_cells = self.lists_cells();
        let Some(cells) = &bounds.cells else { return Ok(()) };
        if lists_cells {
            let span = self.b.span;
            let ends = self.list_active_cells(cells)?;
            self.b.span = span;
            bounds.ranges = ends.into_iter().map(|end| Range { begin: self.b.int(0, Scalar::I32), end }).collect();
        }
        Ok(())
    }

    /// The indices of an iteration, in the user's order; if it is a word, those of its first element.
    fn loop_indices(&mut self, id: ValueId, bounds: &LoopBox, words: Option<WordElements>) -> Vec<ValueId> {
        let index = |s: &mut Self, level: usize| {
            let ty = s.b.ty(bounds.ranges[level].begin).clone();
            let index = s.b.push(Op::LoopIndex(id, level as u32), ty);
            s.first_in_word(words, level, index)
        };
        match &bounds.cells {
            Some(cells) if self.lists_cells() => {
                let iteration: Vec<ValueId> = (0..bounds.ranges.len()).map(|level| index(self, level)).collect();
                self.indices_of_listed(cells, &iteration)
            }
            _ => bounds.position.iter().map(|&level| index(self, level)).collect(),
        }
    }

    /// Lowers the body of an iteration. If the loop does not run over a list of active cells, guards it by the cell's
    /// state.
    fn if_active<T>(
        &mut self,
        bounds: &LoopBox,
        indices: &[ValueId],
        body: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        match &bounds.cells {
            Some(cells) if !self.lists_cells() => {
                let active = self.was_active(cells, indices);
                let (then, result) = self.in_block(body)?;
                let (other, ()) = self.in_block(|_| Ok(()))?;
                self.b.push(Op::If(active, then, other), Type::Unit);
                Ok(result)
            }
            _ => body(self),
        }
    }

    /// A nested loop is part of a task, so its name is not used.
    fn warn_of_lost_name(&self, is_task: bool, config: Option<&LoopConfig>, target: &Expr) {
        if let (false, Some(name)) = (is_task, config.and_then(|c| c.name.as_ref())) {
            let message = format!(
                "the name `{name}` of this loop has no effect: the loop is nested inside another for-loop or a branch, \
                 and only loops at the top level of a kernel are tasks"
            );
            self.world.warn(*Diagnostic::new(Code::Syntax, target.span, message));
        }
    }

    fn runtime_for(
        &mut self,
        target: &Expr,
        mut bounds: LoopBox,
        body: &[Stmt],
        (config, handles_words): (Option<LoopConfig>, bool),
    ) -> Result<()> {
        let names = self.loop_targets(target)?.into_iter().map(str::to_owned).collect::<Vec<_>>();
        let axes = bounds.position.len();
        if bounds.grouped && names.len() != 1 {
            return self.err(Code::Syntax, format!("Group for should have 1 loop target, found {}", names.len()));
        }
        if !bounds.grouped && names.len() != axes {
            return Err(Diagnostic::new(
                Code::Syntax,
                target.span,
                match bounds.kind {
                    BoxKind::Range => format!("a loop over `range` takes one variable, found {}", names.len()),
                    BoxKind::Ndrange => format!(
                        "Ndrange for loop with number of the loop variables not equal to the dimension of the ndrange \
                         is not supported: {} variables, {axes} axes",
                        names.len()
                    ),
                    BoxKind::Elements => format!(
                        "Number of struct-for indices does not match loop variable dimensionality ({} != {axes}).",
                        names.len()
                    ),
                    BoxKind::Mesh => format!("Mesh for should have 1 loop target, found {}", names.len()),
                },
            )
            .with_hint(
                "Maybe you wanted to use \"for I in qd.grouped(x)\" to group all indices into a single vector I?",
            ));
        }
        if bounds.kind != BoxKind::Ndrange {
            for name in &names {
                self.check_loop_variable(name, target)?;
            }
        }
        self.list_cells_of(&mut bounds)?;
        let words = if handles_words { self.loop_over_words(&mut bounds, body) } else { None };
        let parallel = self.at_top_level();
        self.warn_of_lost_name(parallel, config.as_ref(), target);
        let config = parallel.then(|| LoopConfig { group: self.group, ..config.unwrap_or_default() });
        let serial = config.as_ref().is_none_or(|c| c.serialize);
        if !serial {
            self.shared_locals = self.b.body.locals.len();
            self.shared_bytes = 0;
        }
        self.frame().loops.push(if serial { LoopKind::Serial } else { LoopKind::Parallel });
        // The loop's own value is needed inside, so its place in the arena is taken first.
        let span = self.b.span;
        let id = self.b.body.add_inst(Op::Break, Type::Unit, span);
        if !serial {
            self.iteration = Some((id, bounds.ranges.clone()));
        }
        let mesh_loop = self.mesh_loop;
        let result = self.in_block(|s| {
            let first = s.loop_indices(id, &bounds, words);
            for number in 0..words.map_or(1, |words| words.count) {
                let indices = s.element_in_word(words, &first, number);
                s.scoped(|s| {
                    s.bind_loop_variables(&names, &indices, &bounds, body)?;
                    s.if_active(&bounds, &indices, |s| s.lower_stmts(body))
                })?;
            }
            Ok(())
        });
        self.mesh_loop = mesh_loop;
        self.frame().loops.pop();
        if !serial {
            self.shared_locals = 0;
            self.iteration = None;
        }
        let (block, _) = result?;
        self.b.span = span;
        let parallel = config.filter(|c| !c.serialize);
        let l = ForLoop { parallel, ..ForLoop::serial(bounds.ranges, block) };
        self.b.body.inst_mut(id).op = Op::For(Box::new(l));
        self.b.place(id);
        Ok(())
    }

    fn bind_loop_variables(
        &mut self,
        names: &[String],
        indices: &[ValueId],
        bounds: &LoopBox,
        body: &[Stmt],
    ) -> Result<()> {
        if let (Some(visited), [index]) = (&bounds.visited, indices) {
            let value = self.visited_element(visited, *index)?;
            self.bind(&names[0], Binding { value, immutable: Some("loop index") });
        } else if bounds.grouped {
            let wide = indices.iter().any(|i| *self.b.ty(*i) == Type::Scalar(Scalar::I64));
            let scalar = if wide { Scalar::I64 } else { Scalar::I32 };
            let ty = Type::Vector(scalar, indices.len() as u32);
            let indices = indices.iter().map(|i| self.b.cast(*i, scalar)).collect();
            let v = self.b.push(Op::MakeTensor(indices), ty);
            let value = self.variable(&names[0], Value::Rt(v))?;
            self.bind_value(&names[0], value);
        } else if indices.is_empty() {
            self.bind_value(&names[0], Value::None);
        } else {
            // Loop variables of `ndrange` may be assigned; the change is private to the iteration.
            let assigned =
                if bounds.kind == BoxKind::Ndrange { syntax_facts::of(body).assigned } else { HashSet::default() };
            for (name, index) in names.iter().zip(indices) {
                if assigned.contains(name) {
                    let value = self.variable(name, Value::Rt(*index))?;
                    self.bind_value(name, value);
                } else {
                    self.bind(name, Binding { value: Value::Rt(*index), immutable: Some("loop index") });
                }
            }
        }
        Ok(())
    }
}
