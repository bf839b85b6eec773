//! Rule 34: the access set of a task contains everything that its code reads and writes, including the functions that
//! it calls. Dependences between tasks and between launches are derived from these sets, so an omission causes wrong
//! code.

use std::collections::HashSet;

use crate::body::Body;
use crate::instruction_table::Effect;
use crate::kernel::{AccessSet, MemorySpace, Program, Task};
use crate::op::{FuncId, Op, ValueId};
use crate::print::print_inst;
use crate::rules::{Rule, Violation};

/// Checks the access set of a task that breaks no other rule.
pub(crate) fn verify_access(p: &Program, task: &Task, out: &mut Vec<Violation>) {
    let mut check =
        Check { p, access: &task.access, place: format!("task {}", task.name), called: HashSet::new(), out };
    check.body(&task.body);
}

struct Check<'a> {
    p: &'a Program,
    access: &'a AccessSet,
    place: String,
    called: HashSet<FuncId>,
    out: &'a mut Vec<Violation>,
}

/// How code uses an address.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    Read,
    Write,
    Both,
    /// Another function gets it: it may read or write.
    Some,
}

impl Check<'_> {
    fn body(&mut self, body: &Body) {
        body.visit(body.root, &mut |v, inst| match inst.op.effect() {
            Effect::Read(a) | Effect::ReadVolatile(a) => self.address(body, v, a, Use::Read),
            Effect::Write(a) => self.address(body, v, a, Use::Write),
            Effect::Update(a) => self.address(body, v, a, Use::Both),
            Effect::For(l) => l.reductions.iter().for_each(|r| self.address(body, v, r.target, Use::Both)),
            Effect::Call(f, args) => {
                args.iter().for_each(|a| self.address(body, v, *a, Use::Some));
                if self.called.insert(f) {
                    self.body(&self.p.functions[f.index()].body);
                }
            }
            Effect::Pure | Effect::Index | Effect::Reduce | Effect::Draw | Effect::ReadClock => {}
            Effect::Exchange | Effect::Synchronize | Effect::Branch(..) | Effect::Loop(_) | Effect::Leave => {}
            Effect::Print | Effect::Assert => {}
        });
    }

    fn address(&mut self, body: &Body, v: ValueId, address: ValueId, how: Use) {
        let mut at = address;
        let (read, written) = loop {
            match &body.inst(at).op {
                Op::ElementAddr(base, _) | Op::MemberAddr(base, _) => at = *base,
                Op::BufferAddr(b, _) if self.p.buffers[b.index()].space == MemorySpace::Global => {
                    break (self.access.reads.contains(b), self.access.writes.contains(b));
                }
                Op::FrameAddr(s) => break (self.access.frame_reads.contains(s), self.access.frame_writes.contains(s)),
                // Memory of one thread or block, memory passed by a caller, or not an address.
                _ => return,
            }
        };
        let is_named = match how {
            Use::Read => read,
            Use::Write => written,
            Use::Both => read && written,
            Use::Some => read || written,
        };
        if !is_named {
            let detail = print_inst(body, v);
            self.out.push(Violation { rule: Rule::AccessNamed, place: self.place.clone(), detail });
        }
    }
}
