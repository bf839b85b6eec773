//! Runs the task graph of a program.

use std::collections::HashMap;
use std::rc::Rc;

use octants_ir::{Condition, Program, Scalar, Task, TaskGraph, TaskId, TaskKind};

use crate::machine::{Fault, Machine};
use crate::random::random_key;
use crate::scalar::integer;
use crate::thread::Activation;
use crate::value::{Base, Value};

/// The number of a launch has as many bits: those above it count rounds.
const LAUNCH_BITS: u32 = 40;

/// A run of a program.
pub(crate) struct Launch<'m, 'a> {
    pub machine: &'m mut Machine<'a>,
    pub program: &'a Program,
    pub params: Rc<[Value]>,
    /// The result of the last task that returned something.
    pub returned: Option<Vec<u64>>,
    /// Rounds that each loop has ended.
    pub rounds: HashMap<*const TaskGraph, u64>,
}

impl<'a> Launch<'_, 'a> {
    /// Runs a part, up to a task that fails an assertion.
    pub fn run(&mut self, graph: &'a TaskGraph) -> Result<(), Fault> {
        match graph {
            TaskGraph::Sequence(parts) | TaskGraph::Parallel(parts) => {
                parts.iter().try_for_each(|part| if self.has_failed() { Ok(()) } else { self.run(part) })
            }
            TaskGraph::While { condition, body, .. } => {
                let outer = self.machine.key;
                loop {
                    // An iteration draws random numbers like a launch with another number, which includes the count of
                    // earlier iterations.
                    let rounds = self.rounds.entry(std::ptr::from_ref(graph)).or_default();
                    let (settings, ended) = (self.machine.settings, *rounds);
                    *rounds += 1;
                    let launch = settings.launch.wrapping_add(ended << LAUNCH_BITS);
                    self.machine.key = random_key(settings.seed, launch);
                    self.run(body)?;
                    self.machine.key = outer;
                    if self.has_failed() || !self.holds(*condition)? {
                        return Ok(());
                    }
                }
            }
            TaskGraph::If { condition, then, otherwise } => {
                let part = if self.holds(*condition)? { then } else { otherwise };
                self.run(part)
            }
            TaskGraph::Switch { selector, cases, otherwise } => {
                let number = usize::try_from(self.integer_at(*selector)?).ok();
                self.run(number.and_then(|n| cases.get(n)).unwrap_or(otherwise))
            }
            TaskGraph::Launch { task, .. } => self.launch(*task),
            TaskGraph::Checkpoint { body, .. } => self.run(body),
        }
    }

    fn has_failed(&self) -> bool {
        self.machine.failure.is_some()
    }

    fn launch(&mut self, task: TaskId) -> Result<(), Fault> {
        let Task { name, kind, body, .. } = &self.program.tasks[task.index()];
        self.machine.task = task.0;
        let activation = Activation::new(format!("task {name}"), body, self.params.clone(), None);
        if let TaskKind::Grid(config) = kind {
            return self.machine.run_grid_task(&activation, config);
        }
        let returned = self.machine.run_body(activation)?;
        self.returned = returned.filter(|r| !r.is_empty()).or(self.returned.take());
        Ok(())
    }

    fn holds(&mut self, condition: Condition) -> Result<bool, Fault> {
        Ok(self.integer_at(condition)? != 0)
    }

    fn integer_at(&mut self, condition: Condition) -> Result<i128, Fault> {
        let (base, ty) = match condition {
            Condition::Buffer(b) => (self.machine.memory.locate(b, &[]), &self.program.buffers[b.index()].elem),
            Condition::Frame(slot) => (Base::Frame(slot), &self.program.frame[slot.index()]),
        };
        let s = ty.scalar().unwrap_or(Scalar::I32);
        let fault = |what| Fault {
            what,
            place: "the task graph".into(),
            instruction: format!("{condition:?}"),
            thread: (0, 0),
        };
        let bits = self.machine.read_between_tasks(&base, s).map_err(fault)?;
        Ok(integer(bits, s))
    }
}
