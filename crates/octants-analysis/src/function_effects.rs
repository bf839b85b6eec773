//! The memory that functions and tasks touch, including everything that they call.

use octants_ir::{Body, Function, Program};

use crate::body_facts::own_effects;
use crate::effects::Effects;

/// The effects of each function, by `FuncId`.
pub fn function_effects(functions: &[Function]) -> Vec<Effects> {
    let own: Vec<_> = functions.iter().map(|f| own_effects(&f.body)).collect();
    let mut all = vec![Effects::default(); functions.len()];
    // Each round adds what one more call reaches; the sets only grow, so this ends.
    loop {
        let next: Vec<Effects> = own.iter().map(|own| own.with(&all)).collect();
        if next == all {
            return all;
        }
        all = next;
    }
}

/// The effects of a body, given those of the functions it may call.
pub fn body_effects(body: &Body, functions: &[Effects]) -> Effects {
    own_effects(body).with(functions)
}

/// Fills in the access set of every task.
pub fn compute_access(program: &mut Program) {
    let functions = function_effects(&program.functions);
    for task in &mut program.tasks {
        task.access = body_effects(&task.body, &functions).access;
    }
}
