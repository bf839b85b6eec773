//! Splits a program into pieces, each a separate module, so that several threads can compile it.
//!
//! The split, and with it the code, depends on the program and the target only, never on the number of threads. A
//! module has a fixed cost, and a function that tasks of several modules call is compiled in each of them. Pieces
//! therefore have a minimum size, and there are fewer if too much would be compiled twice. If the driver runs an
//! assembler that inlines functions, which takes longer than compiling them, each entry point counts its callees as
//! its own. A persistent loop is a piece of its own, so that the code of its tasks is what it would be without it.

use crate::facts::Facts;

/// The part of a task that is lowered together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The main form, and those that must be in the same module.
    Main,
    /// The form for one thread.
    Single,
    /// The form in which a thread runs several iterations at a time.
    Wide,
    /// The persistent loop of this index, of which the task is the first.
    Loop(usize),
}

/// A form of a task's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Number of the task.
    pub task: usize,
    pub form: Form,
}

impl Entry {
    /// The tasks whose code it contains.
    pub fn tasks(self, facts: &Facts<'_>) -> Vec<usize> {
        match self.form {
            Form::Loop(index) => facts.loops[index].tasks.clone(),
            _ => vec![self.task],
        }
    }
}

/// The contents of one module.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    /// In the order of tasks.
    pub entries: Vec<Entry>,
    /// Instructions, including those of functions.
    pub size: usize,
}

impl Piece {
    /// The task whose coarsened variant is the only content.
    pub fn wide_form_of(&self) -> Option<usize> {
        self.entries.iter().find(|e| e.form == Form::Wide).map(|e| e.task)
    }
}

impl Piece {
    /// The persistent loop that is the only content, by its index.
    pub fn loop_of(&self) -> Option<usize> {
        self.entries.iter().find_map(|e| if let Form::Loop(index) = e.form { Some(index) } else { None })
    }
}

/// Minimum number of instructions of a piece.
const LEAST: usize = 250;
/// The fixed cost of an entry point, in instructions.
const ENTRY: usize = 50;
/// Maximum number of pieces of one program, roughly: more threads than that are rare, and each piece must be linked.
const MOST: usize = 64;

/// The persistent loops.
fn loops(facts: &Facts<'_>) -> impl Iterator<Item = Entry> {
    facts.loops.iter().enumerate().map(|(index, of)| Entry { task: of.tasks[0], form: Form::Loop(index) })
}

/// All code of a program, except forms that may be separate modules.
pub(crate) fn everything(facts: &Facts<'_>) -> Vec<Entry> {
    all_entries(facts).into_iter().chain(loops(facts)).collect()
}

/// All forms of all tasks, except those that may be separate modules.
fn all_entries(facts: &Facts<'_>) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (task, schedule) in facts.schedule.tasks.iter().enumerate() {
        entries.push(Entry { task, form: Form::Main });
        if schedule.forms.is_single_apart() {
            entries.push(Entry { task, form: Form::Single });
        }
    }
    entries
}

/// The pieces of a program. If code is `assembled_later`, wide forms are separate pieces, which come last.
pub(crate) fn cut(facts: &Facts<'_>, assembled_later: bool) -> Vec<Piece> {
    let entries = all_entries(facts);
    let sizes = || Sizes::new(facts, !assembled_later);
    let whole = sizes().add_all(&entries);
    let mut least = LEAST.max(whole / MOST);
    let mut pieces = loop {
        let pieces = group(&entries, least, sizes);
        let sum: usize = pieces.iter().map(|p| p.size).sum();
        if pieces.len() <= 1 || sum <= whole + whole / 4 {
            break pieces;
        }
        least *= 2;
    };
    if assembled_later {
        let tasks = facts.schedule.tasks.iter().enumerate();
        pieces.extend(tasks.filter(|(_, schedule)| schedule.forms.coarsening.is_some()).map(|(task, _)| {
            let entries = vec![Entry { task, form: Form::Wide }];
            Piece { size: sizes().add_all(&entries), entries }
        }));
    }
    pieces.extend(loops(facts).map(|entry| Piece { size: sizes().add_all(&[entry]), entries: vec![entry] }));
    pieces
}

/// Merges neighbors until they have the minimum size.
fn group<'f>(entries: &[Entry], least: usize, of_a_piece: impl Fn() -> Sizes<'f>) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut sizes = of_a_piece();
    for entry in entries {
        if pieces.last().is_none_or(|p| p.size >= least) {
            sizes = of_a_piece();
            pieces.push(Piece::default());
        }
        if let Some(piece) = pieces.last_mut() {
            piece.entries.push(*entry);
            piece.size += sizes.add(*entry);
        }
    }
    // The remainder joins the previous piece.
    if let [.., before, last] = pieces.as_mut_slice()
        && last.size < least / 2
    {
        before.entries.append(&mut last.entries);
        before.size += last.size;
        pieces.pop();
    }
    pieces
}

/// Adds up instructions.
struct Sizes<'f> {
    facts: &'f Facts<'f>,
    /// Functions that several entries call count once.
    shares_functions: bool,
    /// Functions counted so far, for one thread and for several.
    seen: Vec<[bool; 2]>,
}

impl<'f> Sizes<'f> {
    fn new(facts: &'f Facts<'f>, shares_functions: bool) -> Sizes<'f> {
        Sizes { facts, shares_functions, seen: vec![[false; 2]; facts.program.functions.len()] }
    }

    fn add(&mut self, entry: Entry) -> usize {
        let tasks: Vec<_> = entry.tasks(self.facts).into_iter().map(|t| &self.facts.schedule.tasks[t]).collect();
        let mut size = ENTRY + tasks.iter().map(|t| t.size).sum::<usize>();
        for f in tasks.iter().flat_map(|t| &t.functions) {
            let seen = &mut self.seen[f.index()][usize::from(entry.form == Form::Single)];
            if !std::mem::replace(seen, self.shares_functions) {
                size += self.facts.schedule.functions[f.index()].size;
            }
        }
        size
    }

    fn add_all(mut self, entries: &[Entry]) -> usize {
        entries.iter().map(|e| self.add(*e)).sum()
    }
}
