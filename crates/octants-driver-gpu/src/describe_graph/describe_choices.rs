//! Conditionals of a graph: one node with a graph per branch, or a node per branch.

use octants_artifact::Condition;
use octants_runtime::Section;

use super::{Described, Description, NotAGraph, SwitchState, Turn, What, ever};
use crate::vendor::{GraphLoops, RawGraph, RawNode};

impl Description<'_> {
    /// Adds an `if` with its `else`.
    ///
    /// # Safety
    /// As [`Description::add`].
    pub(super) unsafe fn choice(
        &mut self,
        what: &Described<'_>,
        to: RawGraph,
        dependencies: Vec<RawNode>,
        (condition, [then, otherwise]): (Condition, &[Box<[Section]>; 2]),
    ) -> Result<Vec<RawNode>, NotAGraph> {
        // Any value except 0 counts as 1.
        let parts = [&**otherwise, &**then];
        // SAFETY: the contract above.
        unsafe {
            if self.loops()?.has_cases() && parts.iter().all(|part| !part.is_empty()) {
                return self.one_node(what, to, dependencies, (condition, &parts));
            }
            let first = (SwitchState::Nonzero, &**then);
            self.node_per_branch(what, to, dependencies, (condition, &[first, (SwitchState::Equal(0, 1), otherwise)]))
        }
    }

    /// Adds a switch. The last part is the default case.
    ///
    /// # Safety
    /// As [`Description::add`].
    pub(super) unsafe fn cases(
        &mut self,
        what: &Described<'_>,
        to: RawGraph,
        dependencies: Vec<RawNode>,
        (selector, parts): (Condition, &[Box<[Section]>]),
    ) -> Result<Vec<RawNode>, NotAGraph> {
        let most = parts.len() as u64 - 1;
        // SAFETY: the contract above.
        unsafe {
            if self.loops()?.has_cases() {
                let parts: Vec<&[Section]> = parts.iter().map(|part| &**part).collect();
                return self.one_node(what, to, dependencies, (selector, &parts));
            }
            let branches: Vec<_> = (0..).zip(parts).map(|(n, part)| (SwitchState::Equal(n, most), &**part)).collect();
            self.node_per_branch(what, to, dependencies, (selector, &branches))
        }
    }

    /// Adds one node with a graph for each of the values 0, 1, and so on. The last graph also runs for larger values.
    ///
    /// # Safety
    /// As [`Description::add`].
    unsafe fn one_node(
        &mut self,
        what: &Described<'_>,
        to: RawGraph,
        dependencies: Vec<RawNode>,
        (condition, parts): (Condition, &[&[Section]]),
    ) -> Result<Vec<RawNode>, NotAGraph> {
        let function = self.decide.ok_or(NotAGraph::Ever)?;
        // SAFETY: the contract above.
        unsafe {
            let switch = ever(self.loops()?.create_switch(to))?;
            let state = SwitchState::Value(parts.len() as u64 - 1);
            let turn = Turn { switch, condition: Some(condition), state, ..Turn::default() };
            let decision = vec![self.kernel(what, to, &dependencies, What::Decision(function, turn))?];
            let within = parts.len() - usize::from(parts.last().is_some_and(|part| part.is_empty()));
            let (node, graphs) = ever(self.loops()?.add_cases(to, switch, within, &decision))?;
            for (inside, part) in graphs.into_iter().zip(parts) {
                self.sections(what, inside, Vec::new(), part)?;
            }
            Ok(vec![node])
        }
    }

    /// Adds a node per branch. Sets all switches before any branch runs, because a branch may change the condition.
    ///
    /// # Safety
    /// As [`Description::add`].
    unsafe fn node_per_branch(
        &mut self,
        what: &Described<'_>,
        to: RawGraph,
        dependencies: Vec<RawNode>,
        (condition, branches): (Condition, &[(SwitchState, &[Section])]),
    ) -> Result<Vec<RawNode>, NotAGraph> {
        let function = self.decide.ok_or(NotAGraph::Ever)?;
        let (mut last, mut switches) = (dependencies, Vec::with_capacity(branches.len()));
        // SAFETY: the contract above.
        unsafe {
            for (state, branch) in branches.iter().filter(|(_, branch)| !branch.is_empty()) {
                let switch = ever(self.loops()?.create_switch(to))?;
                let turn = Turn { switch, condition: Some(condition), state: *state, ..Turn::default() };
                last = vec![self.kernel(what, to, &last, What::Decision(function, turn))?];
                switches.push((switch, branch));
            }
            for (switch, branch) in switches {
                let (node, inside) = ever(self.loops()?.add_choice(to, switch, &last))?;
                self.sections(what, inside, Vec::new(), branch)?;
                last = vec![node];
            }
        }
        Ok(last)
    }

    fn loops(&self) -> Result<&dyn GraphLoops, NotAGraph> {
        self.graphs.loops().ok_or(NotAGraph::Ever)
    }
}
