//! The parser of a task graph's text, which `print_graph` writes. Without a `graph`, a program launches each task
//! once, in order.

use crate::kernel::Task;
use crate::op::{BufferId, FrameSlot};
use crate::parser::{Parsed, Parser};
use crate::task_graph::{Condition, GuardedIterations, LaunchCount, TaskGraph, TaskId};

impl Parser {
    pub(crate) fn graph(&mut self, tasks: &[Task]) -> Parsed<TaskGraph> {
        if self.eat_word("graph") { self.parts(tasks) } else { Ok(TaskGraph::in_order(tasks)) }
    }

    /// Parts between braces.
    fn parts(&mut self, tasks: &[Task]) -> Parsed<TaskGraph> {
        self.sign("{")?;
        let mut parts = Vec::new();
        while !self.eat("}") {
            parts.push(self.part(tasks)?);
        }
        Ok(TaskGraph::Sequence(parts))
    }

    fn part(&mut self, tasks: &[Task]) -> Parsed<TaskGraph> {
        Ok(match self.any_word()?.as_str() {
            "sequence" => self.parts(tasks)?,
            "parallel" => {
                self.sign("{")?;
                let mut groups = Vec::new();
                while self.eat_word("group") {
                    groups.push(self.parts(tasks)?);
                }
                self.sign("}")?;
                TaskGraph::Parallel(groups)
            }
            "while" => {
                let condition = self.condition()?;
                let guarded = if self.eat_word("guarded") { Some(self.guarded()?) } else { None };
                TaskGraph::While { condition, body: Box::new(self.parts(tasks)?), guarded }
            }
            "if" => {
                let condition = self.condition()?;
                let then = Box::new(self.parts(tasks)?);
                let otherwise = if self.eat_word("else") { self.parts(tasks)? } else { TaskGraph::default() };
                TaskGraph::If { condition, then, otherwise: Box::new(otherwise) }
            }
            "switch" => {
                let selector = self.condition()?;
                self.sign("{")?;
                let mut cases = Vec::new();
                while self.eat_word("case") {
                    cases.push(self.parts(tasks)?);
                }
                let otherwise = if self.eat_word("else") { self.parts(tasks)? } else { TaskGraph::default() };
                self.sign("}")?;
                TaskGraph::Switch { selector, cases, otherwise: Box::new(otherwise) }
            }
            "launch" => {
                let name = self.name()?;
                let Some(task) = tasks.iter().position(|t| t.name == name) else {
                    return self.fail(format!("no task `{name}` is declared above"));
                };
                self.word("count")?;
                let count = match () {
                    () if self.eat_word("argument") => LaunchCount::Argument,
                    () if self.eat_word("memory") => LaunchCount::Memory,
                    () => LaunchCount::Known(self.int()?),
                };
                TaskGraph::Launch { task: TaskId(task as u32), count }
            }
            "checkpoint" => {
                let label = self.int()?;
                self.word("yields")?;
                TaskGraph::Checkpoint { label, yields_on: self.condition()?, body: Box::new(self.parts(tasks)?) }
            }
            other => return self.fail(format!("`{other}` is not a part of a task graph")),
        })
    }

    fn guarded(&mut self) -> Parsed<GuardedIterations> {
        let per_decision = self.int()?;
        match self.condition()? {
            Condition::Frame(guard) => Ok(GuardedIterations { per_decision, guard }),
            Condition::Buffer(b) => self.fail(format!("{b} is not a slot of the frame")),
        }
    }

    fn condition(&mut self) -> Parsed<Condition> {
        match self.numbered("frame") {
            Some(slot) => Ok(Condition::Frame(FrameSlot(slot))),
            None => Ok(Condition::Buffer(BufferId(self.id('@')?))),
        }
    }
}
