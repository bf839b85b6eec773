//! Runs the calls of a case in the interpreter and compares the results.

use octants_interpreter::{Fault, Grid, Interpreter, Leaf, Memory, Order, Outcome};
use octants_ir::{Buffer, BufferId, Kernel, Layout, MemorySpace, Param, Program, Scalar};

use crate::call_text::{Call, Expected, Literal};

/// Which of a case's codes a call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Both,
    Input,
    Output,
}

/// A call of a case, and its text.
#[derive(Debug, Clone)]
pub(crate) struct CaseCall {
    pub side: Side,
    pub text: String,
    pub call: Call,
}

/// A kernel or a program.
enum Code {
    Kernel(Box<Kernel>),
    Program(Box<Program>),
}

/// The line begins a kernel or a program.
fn starts(line: &str) -> bool {
    line.starts_with("kernel ") || line.starts_with("program ")
}

/// The text has a kernel or a program in it.
pub(crate) fn has_code(text: &str) -> bool {
    text.lines().any(starts)
}

impl Code {
    /// The first kernel or program of a text.
    fn parse(text: &str) -> Result<Code, String> {
        let mut lines = text.lines().skip_while(|l| !starts(l));
        let first = lines.next().ok_or("no kernel or program to call")?;
        let rest: Vec<&str> = lines.take_while(|l| !starts(l)).collect();
        let text = format!("{first}\n{}\n", rest.join("\n"));
        if first.starts_with("kernel") {
            text.parse().map(|k| Code::Kernel(Box::new(k))).map_err(|e| e.to_string())
        } else {
            text.parse().map(|p| Code::Program(Box::new(p))).map_err(|e| e.to_string())
        }
    }

    fn buffers(&self) -> &[Buffer] {
        match self {
            Code::Kernel(k) => &k.buffers,
            Code::Program(p) => &p.buffers,
        }
    }

    fn params(&self) -> &[Param] {
        match self {
            Code::Kernel(k) => &k.params,
            Code::Program(p) => &p.params,
        }
    }

    fn run(&self, with: &Interpreter, memory: &mut Memory, params: &[Vec<Leaf>]) -> Result<Outcome, Fault> {
        match self {
            Code::Kernel(k) => with.run_kernel(k, memory, params),
            Code::Program(p) => with.run_program(p, memory, params),
        }
    }
}

/// Runs calls on a text. Returns descriptions of the differences.
pub(crate) fn run_calls(calls: &[CaseCall], not: Side, text: &str, grid: Grid) -> Vec<String> {
    let calls: Vec<&CaseCall> = calls.iter().filter(|c| c.side != not).collect();
    if calls.is_empty() {
        return Vec::new();
    }
    let code = match Code::parse(text) {
        Ok(code) => code,
        Err(e) => return vec![e],
    };
    let mut wrong = Vec::new();
    // Iterations of a parallel loop may run in any order.
    for order in [Order::Numbered, Order::Shuffled(1), Order::Shuffled(2)] {
        let with = Interpreter { grid, order, ..Interpreter::default() };
        for c in &calls {
            if let Err(e) = run_call(&code, &c.call, &with) {
                wrong.push(format!("`{}` ({order:?}): {e}", c.text));
            }
        }
    }
    wrong
}

fn run_call(code: &Code, call: &Call, with: &Interpreter) -> Result<(), String> {
    let mut memory = Memory::new(code.buffers());
    let given = |name: &str| call.arguments.iter().find(|(n, _)| n == name).map(|(_, value)| value);
    for (name, _) in &call.arguments {
        let known = code.params().iter().any(|p| p.name == *name) || code.buffers().iter().any(|b| b.name == *name);
        if !known {
            return Err(format!("nothing has the name `{name}`"));
        }
    }
    for (i, b) in code.buffers().iter().enumerate().filter(|(_, b)| !b.space.is_temporary()) {
        let id = BufferId(i as u32);
        match given(&b.name) {
            Some(value) => fill(&mut memory, id, b, value)?,
            None if matches!(b.layout, Layout::Dense { .. } | Layout::Flat(_)) || b.space == MemorySpace::Shared => {}
            None => return Err(format!("`{}` is not given", b.name)),
        }
    }
    let param = |p: &Param| given(&p.name).map(Literal::leaves).ok_or_else(|| format!("`{}` is not given", p.name));
    let params = code.params().iter().map(param).collect::<Result<Vec<_>, _>>()?;
    let outcome = code.run(with, &mut memory, &params);
    let (message, is_error) = match &outcome {
        Err(fault) => (fault.to_string(), true),
        Ok(o) => (o.failure.clone().unwrap_or_default(), false),
    };
    let said = |part: &str, wanted: bool| wanted && message.contains(part);
    for e in &call.results {
        match e {
            Expected::Error(part) if said(part, is_error) => {}
            Expected::Fails(part) if said(part, !is_error && !message.is_empty()) => {}
            Expected::Error(_) | Expected::Fails(_) => return Err(format!("it ends with `{message}`")),
            _ => {}
        }
    }
    let ends_early = |e: &Expected| matches!(e, Expected::Error(_) | Expected::Fails(_));
    if !message.is_empty() && !call.results.iter().any(ends_early) {
        return Err(message);
    }
    call.results.iter().try_for_each(|e| compare(code.buffers(), &memory, outcome.as_ref().ok(), e))
}

fn fill(memory: &mut Memory, id: BufferId, b: &Buffer, value: &Literal) -> Result<(), String> {
    let shape = match &b.layout {
        Layout::Dense { shape, .. } => shape.clone(),
        Layout::Flat(_) => return Err(format!("`{}` is a part of the memory of an array", b.name)),
        Layout::Contiguous | Layout::Strided => value.shape(b.ndim as usize),
    };
    let leaves = value.leaves();
    let wanted = shape.iter().product::<u64>() as usize * b.elem.leaf_count();
    if leaves.len() != wanted {
        return Err(format!("`{}` takes {wanted} scalars, not {}", b.name, leaves.len()));
    }
    memory.set(id, &shape, &leaves);
    Ok(())
}

fn compare(buffers: &[Buffer], memory: &Memory, outcome: Option<&Outcome>, e: &Expected) -> Result<(), String> {
    match e {
        Expected::Holds { buffer: Some(name), value, exact } => {
            let i = buffers.iter().position(|b| b.name == *name).ok_or_else(|| format!("no buffer `{name}`"))?;
            let found = memory.get(BufferId(i as u32));
            same(&found, &value.leaves(), buffers[i].elem.scalar(), *exact).map_err(|e| format!("{name} {e}"))
        }
        Expected::Holds { buffer: None, value, exact } => {
            let found = outcome.and_then(|o| o.returned.clone()).ok_or("it returns nothing")?;
            same(&found, &value.leaves(), None, *exact).map_err(|e| format!("what is returned {e}"))
        }
        Expected::Prints(lines) => {
            let mut found = outcome.map(|o| o.printed.clone()).unwrap_or_default();
            let mut wanted = lines.clone();
            // In any order, as iterations are.
            found.sort();
            wanted.sort();
            if found == wanted { Ok(()) } else { Err(format!("it prints {found:?}")) }
        }
        Expected::Error(_) | Expected::Fails(_) => Ok(()),
    }
}

fn same(found: &[Leaf], wanted: &[Leaf], s: Option<Scalar>, exact: bool) -> Result<(), String> {
    let number = |leaf: Leaf| match leaf {
        Leaf::Int(i) => i as f64,
        Leaf::Float(x) => x,
    };
    let equal = |a: Leaf, b: Leaf| {
        // The stated value, rounded or wrapped to the type.
        let b = s.map_or(b, |s| Leaf::from_bits(b.to_bits(s), s));
        match (a, b) {
            (Leaf::Int(a), Leaf::Int(b)) => a == b,
            (a, b) if exact => number(a) == number(b) || (number(a).is_nan() && number(b).is_nan()),
            (a, b) => (number(a) - number(b)).abs() <= 1e-5 * (1.0 + number(b).abs()),
        }
    };
    let is_same = found.len() == wanted.len() && found.iter().zip(wanted).all(|(a, b)| equal(*a, *b));
    let text = |all: &[Leaf]| {
        let all: Vec<String> = all
            .iter()
            .map(|x| match x {
                Leaf::Int(i) => i.to_string(),
                Leaf::Float(x) => format!("{x:?}"),
            })
            .collect();
        all.join(", ")
    };
    if is_same { Ok(()) } else { Err(format!("is [{}]", text(found))) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use octants_interpreter::Grid;

    use super::{CaseCall, Side, run_calls};
    use crate::call_text::parse_call;

    const DOUBLE: &str = "kernel double -> i32 {
      param n: i32
      buffer @0 x: vec2<f32>[1] contiguous
      body {
        %0: i32 = param 0
        %1: i32 = const 0
        %2 = for [%1..%0] parallel {
          %3: i32 = loop_index %2, 0
          %4: ref vec2<f32> = buffer_addr @0[%3]
          %5: vec2<f32> = load %4
          %6: vec2<f32> = add %5, %5
          store %4, %6
          print(\"at \", %3)
        }
        %9: u1 = lt %0, %1
        %10: u1 = logic_not %9
        assert %10, (\"n is negative\")
        return %0
      }
    }";

    fn wrong(text: &str) -> Vec<String> {
        let call = CaseCall { side: Side::Both, text: text.into(), call: parse_call(text).unwrap() };
        run_calls(&[call], Side::Output, DOUBLE, Grid::default())
    }

    #[test]
    fn calls_with_the_stated_results_pass() {
        for text in [
            "(n = 2, x = [[1.5, 2], [0.5; 2]]) -> x = [[3, 4], [1, 1]], return 2, prints \"at 1\" \"at 0\"",
            "(n = 0, x = []) -> x = [], return ~ 1e-6",
            "(n = -1, x = []) -> fails \"negative\"",
            "(n = 2, x = [[0..2]]) -> error \"[1] is out of bounds of `x`\"",
        ] {
            assert_eq!(wrong(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn calls_with_other_results_are_reported() {
        for (text, said) in [
            ("(n = 1, x = [[1, 2]]) -> x = [[2, 5]]", "x is [2.0, 4.0]"),
            ("(n = 1, x = [[1, 2]]) -> return 2", "what is returned is [1]"),
            ("(n = 1, x = [[1, 2]]) -> prints \"at 2\"", "it prints [\"at 0\"]"),
            ("(n = 1, x = [[1, 2]]) -> fails \"negative\"", "it ends with ``"),
            ("(n = -1, x = []) -> return 1", "n is negative"),
            ("(n = 1, x = []) -> x = []", "is out of bounds"),
            ("(n = 1) -> return 1", "`x` is not given"),
            ("(n = 1, x = [1, 2]) -> return 1", "`x` takes 4 scalars, not 2"),
            ("(m = 1, x = []) -> return 1", "nothing has the name `m`"),
        ] {
            let found = wrong(text);
            assert!(found.len() == 3 && found[0].contains(said), "{text}: {found:?}");
        }
    }

    #[test]
    fn malformed_calls_are_refused() {
        for text in ["n = 1 -> return 1", "(n = 1)", "(n 1) -> return 1", "(n = [1) -> return 1", "(n = 1) -> x"] {
            assert!(parse_call(text).is_err(), "{text}");
        }
    }
}
