//! `qd.cache_read_only(x)`: the next loop only reads these arrays. The compiler finds out by itself what a loop only
//! reads, so the promise changes no code; a loop that breaks it is refused.
//!
//! Writes through an address that a function receives are not followed.

use std::collections::HashSet;

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{Body, BufferId, FuncId, Op, ValueId};

use super::Lowerer;
use super::builtins::Call;
use crate::value::Value;

/// Arrays that loops promise to only read.
#[derive(Default)]
pub(super) struct ReadOnly {
    /// For the next loop.
    pending: Vec<BufferId>,
    /// By loop of the kernel.
    loops: Vec<(ValueId, Vec<BufferId>)>,
}

impl Lowerer<'_> {
    /// `cache_read_only(x, ...)`, and `block_local(x, ...)`, which promises nothing.
    pub(super) fn lower_cached(&mut self, call: Call) -> Result<Value> {
        for value in &call.args {
            let mut arrays = Vec::new();
            if !self.collect_arrays(value, &mut arrays)? {
                let what = self.describe(value);
                let text = format!("`{}` takes fields and arrays, not {what}", call.name);
                return self.err(Code::Type, text);
            }
            if call.name == "cache_read_only" {
                self.read_only.pending.extend(arrays);
            }
        }
        Ok(Value::None)
    }

    /// The arrays of a field or a struct of fields; `false` for other values.
    fn collect_arrays(&mut self, value: &Value, into: &mut Vec<BufferId>) -> Result<bool> {
        if let Some(buffer) = self.as_array(value)? {
            into.push(buffer);
            return Ok(true);
        }
        let Some(members) = self.as_members(value).filter(|m| m.is_array) else { return Ok(false) };
        for (_, member) in &members.items {
            if !self.collect_arrays(member, into)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The arrays that the next loop promises to only read.
    pub(super) fn take_read_only(&mut self) -> Vec<BufferId> {
        std::mem::take(&mut self.read_only.pending)
    }

    /// Notes the promise of the loop that was lowered last.
    pub(super) fn note_read_only(&mut self, promised: Vec<BufferId>) {
        let last = self.b.body.block(self.b.cursor()).last().copied();
        if let Some(last) = last.filter(|_| !promised.is_empty() && self.in_kernel_body) {
            self.read_only.loops.push((last, promised));
        }
    }

    /// Refuses loops that write what they promise to only read.
    pub(super) fn check_read_only(&self) -> Result<()> {
        for (of, promised) in &self.read_only.loops {
            for block in self.b.body.inst(*of).op.blocks() {
                let mut seen = HashSet::new();
                let mut found = None;
                self.b.body.visit(block, &mut |v, _| {
                    found = found.take().or_else(|| self.broken(&self.b.body, v, promised, &mut seen));
                });
                if let Some(found) = found {
                    return Err(found);
                }
            }
        }
        Ok(())
    }

    /// The mistake if an instruction, or a function that it calls, writes one of the arrays.
    fn broken(
        &self,
        body: &Body,
        v: ValueId,
        promised: &[BufferId],
        seen: &mut HashSet<FuncId>,
    ) -> Option<Box<Diagnostic>> {
        let inst = body.inst(v);
        match &inst.op {
            Op::Store(address, _) | Op::Atomic(_, address, _) | Op::AtomicCas(address, ..) => {
                buffer_of(body, *address).filter(|buffer| promised.contains(buffer))?;
                let text = "the loop writes an array that, according to `qd.cache_read_only`, it only reads";
                let found = Diagnostic::new(Code::Value, inst.span, text);
                Some(found.with_hint("remove the array from the arguments of `qd.cache_read_only`"))
            }
            Op::Call(f, _) if seen.insert(*f) => {
                let callee = &self.functions[f.index()];
                let mut found = None;
                callee.body.visit(callee.body.root, &mut |v, _| {
                    found = found.take().or_else(|| self.broken(&callee.body, v, promised, seen));
                });
                let mut found = found?;
                found.trace.push((callee.name.clone(), inst.span));
                Some(found)
            }
            _ => None,
        }
    }
}

/// The buffer that an address leads to.
fn buffer_of(body: &Body, mut address: ValueId) -> Option<BufferId> {
    loop {
        match &body.inst(address).op {
            Op::ElementAddr(base, _) | Op::MemberAddr(base, _) => address = *base,
            Op::BufferAddr(buffer, _) => return Some(*buffer),
            _ => return None,
        }
    }
}
