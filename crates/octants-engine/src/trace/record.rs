//! [`Tracing`]: a [`World`] that forwards to another one and records the questions.

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};

use octants_artifact::{Fingerprint, Key, Lookup, StoredWarning};
use octants_diag::{Code, Diagnostic, Sources};
use octants_frontend::{Entity, FuncSource, HostValue, LineEvent, Obj, World, WorldResult};
use octants_ir::Scalar;

use super::answer::{Answer, ask, is_inert, made, runs_code_of};
use super::fingerprint::fingerprint;
use super::outcome::stored_warning;

/// A world whose answers are written down.
pub struct Tracing<'w> {
    world: &'w dyn World,
    /// The key of the trace; `None` without a cache.
    pub(super) key: Option<Key>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// Questions that were asked before the compilation began: they are not asked again, because a question may have
    /// side effects.
    answered: VecDeque<(Lookup, Answer)>,
    asked: Vec<(Lookup, Fingerprint)>,
    /// The part of `asked` after the last question that may have changed answers.
    seen: HashSet<Fingerprint>,
    /// Objects that were asked about and are immutable.
    known: HashSet<Obj>,
    /// Those among them whose code has no effects.
    inert: HashSet<Obj>,
    warnings: Vec<Diagnostic>,
    printed: Vec<String>,
}

impl<'w> Tracing<'w> {
    /// Forwards to `world`, except for questions that are already answered.
    pub(super) fn new(world: &'w dyn World, key: Option<Key>, answered: Vec<(Lookup, Answer)>) -> Tracing<'w> {
        Tracing { world, key, state: RefCell::new(State { answered: answered.into(), ..State::default() }) }
    }

    /// The recorded questions.
    pub(super) fn take_lookups(&self) -> Vec<(Lookup, Fingerprint)> {
        std::mem::take(&mut self.state.borrow_mut().asked)
    }

    /// Messages to the user: warnings, and printed lines.
    pub(crate) fn said(&self, sources: &Sources) -> (Vec<StoredWarning>, Vec<String>) {
        let state = self.state.borrow();
        let warnings =
            state.warnings.iter().filter(|w| w.code != Code::Precision).map(|w| stored_warning(w, sources)).collect();
        (warnings, state.printed.clone())
    }

    fn ask(&self, lookup: Lookup) -> Answer {
        let ready = {
            let mut state = self.state.borrow_mut();
            match state.answered.front() {
                Some((next, _)) if *next == lookup => state.answered.pop_front().map(|(_, answer)| answer),
                _ => None,
            }
        };
        // The world may run code that compiles another kernel: nothing is borrowed while it is asked.
        let answer = ready.unwrap_or_else(|| ask(self.world, &lookup));
        if self.key.is_none() {
            return answer;
        }
        let print = fingerprint(&lookup, &answer);
        let mut state = self.state.borrow_mut();
        if !runs_code_of(&lookup).iter().all(|obj| state.inert.contains(obj)) {
            state.seen.clear();
        }
        if state.seen.insert(print) {
            state.asked.push((lookup, print));
        }
        answer
    }
}

/// The answer of the kind that the question has.
macro_rules! answer {
    ($self:ident, $lookup:expr, $kind:ident) => {
        match $self.ask($lookup) {
            Answer::$kind(answer) => answer,
            other => panic!("compiler bug: unexpected answer: {other:?}"),
        }
    };
}

/// An answer that cannot fail.
fn sure<T>(result: WorldResult<T>) -> T {
    result.unwrap_or_else(|e| panic!("compiler bug: an infallible query failed: {}", e.message))
}

impl World for Tracing<'_> {
    fn entity(&self, obj: Obj) -> Entity {
        if self.state.borrow().known.contains(&obj) {
            return self.world.entity(obj);
        }
        let entity = answer!(self, Lookup::Entity(obj.0), Entity);
        // The items of a list may change.
        if !matches!(entity, Entity::List(_)) {
            let mut state = self.state.borrow_mut();
            state.known.insert(obj);
            if is_inert(&entity) {
                state.inert.insert(obj);
            }
        }
        entity
    }

    fn global(&self, func: Obj, name: &str) -> WorldResult<Option<Obj>> {
        answer!(self, Lookup::Global(func.0, name.to_string()), Perhaps)
    }

    fn attribute(&self, obj: Obj, name: &str) -> WorldResult<Option<Obj>> {
        answer!(self, Lookup::Attribute(obj.0, name.to_string()), Perhaps)
    }

    fn subscript(&self, obj: Obj, key: Obj) -> WorldResult<Obj> {
        answer!(self, Lookup::Subscript(obj.0, key.0), Object)
    }

    fn call(&self, func: Obj, args: &[Obj], kwargs: &[(String, Obj)]) -> WorldResult<Obj> {
        let args = args.iter().map(|o| o.0).collect();
        let named = kwargs.iter().map(|(name, o)| (name.clone(), o.0)).collect();
        answer!(self, Lookup::Call { function: func.0, args, named }, Object)
    }

    fn binary(&self, op: &str, left: Obj, right: Obj) -> WorldResult<Obj> {
        answer!(self, Lookup::Binary(op.to_string(), left.0, right.0), Object)
    }

    fn unary(&self, op: &str, operand: Obj) -> WorldResult<Obj> {
        answer!(self, Lookup::Unary(op.to_string(), operand.0), Object)
    }

    fn truth(&self, obj: Obj) -> WorldResult<bool> {
        answer!(self, Lookup::Truth(obj.0), Truth)
    }

    fn iterate(&self, obj: Obj) -> WorldResult<Vec<Obj>> {
        answer!(self, Lookup::Iterate(obj.0), Objects)
    }

    fn format(&self, obj: Obj, spec: &str) -> WorldResult<String> {
        answer!(self, Lookup::Format(obj.0, spec.to_string()), Text)
    }

    fn dtype(&self, scalar: Scalar) -> Obj {
        sure(answer!(self, Lookup::Dtype(scalar.name().to_string()), Object))
    }

    fn make(&self, value: HostValue) -> Obj {
        sure(answer!(self, Lookup::Make(made(&value)), Object))
    }

    fn source(&self, func: Obj) -> WorldResult<FuncSource> {
        answer!(self, Lookup::Source(func.0), Source)
    }

    fn freeze(&self, obj: Obj) -> Obj {
        sure(answer!(self, Lookup::Freeze(obj.0), Object))
    }

    fn tensor_method(&self, name: &str) -> Option<Obj> {
        sure(answer!(self, Lookup::TensorMethod(name.to_string()), Perhaps))
    }

    fn line_probe(&self, path: &str, line: u32, event: LineEvent) -> Option<(Obj, i128)> {
        self.world.line_probe(path, line, event)
    }

    fn probes_lines(&self) -> bool {
        self.world.probes_lines()
    }

    fn print(&self, line: &str) {
        self.state.borrow_mut().printed.push(line.to_string());
        self.world.print(line);
    }

    fn is_dataclass(&self, obj: Obj) -> bool {
        self.world.is_dataclass(obj)
    }

    fn runs_on_any_stack(&self) -> bool {
        self.world.runs_on_any_stack()
    }

    fn warn(&self, warning: Diagnostic) {
        self.state.borrow_mut().warnings.push(warning.clone());
        self.world.warn(warning);
    }

    fn type_name(&self, obj: Obj) -> String {
        sure(answer!(self, Lookup::TypeName(obj.0), Text))
    }
}
