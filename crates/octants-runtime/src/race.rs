//! [`Race`]: two unordered accesses of one element, at least one of which changes it.

use std::fmt;

/// Two accesses with no order between them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Race {
    /// The kind of race.
    pub kind: RaceKind,
    /// The user's name of the array, field or variable.
    pub buffer: String,
    /// An element that both access, if known.
    pub index: Option<Vec<i64>>,
    /// The earlier access in the program's text or order.
    pub first: RaceAccess,
    /// The later one.
    pub second: RaceAccess,
    /// How to remove the race: the missing wait, atomic or option.
    pub fix: String,
}

/// The kind of the unordered work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RaceKind {
    /// Iterations of a parallel loop, which share an element.
    Iterations,
    /// Iterations of a parallel loop, which share a variable.
    Local,
    /// Sections of a kernel or graph.
    Sections,
    /// Launches on different streams.
    Launches,
    /// A launch, and the host.
    Host,
}

/// The kind of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Touch {
    /// A read.
    Read,
    /// A write.
    Write,
    /// An atomic update.
    Update,
}

/// One side of a race.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RaceAccess {
    /// The kind of access.
    pub touch: Touch,
    /// `path:line` of the access, in a kernel or, if the host accesses the element, in the program.
    pub at: String,
    /// Its origin: "iteration 3", "kernel `f` on stream 1", "the host".
    pub by: String,
    /// `path:line` of the launch in the program, if relevant.
    pub launched_at: Option<String>,
}

impl RaceKind {
    /// The kind as Python names it.
    pub fn name(self) -> &'static str {
        match self {
            RaceKind::Iterations => "iterations",
            RaceKind::Local => "local",
            RaceKind::Sections => "sections",
            RaceKind::Launches => "launches",
            RaceKind::Host => "host",
        }
    }

    fn subject(self) -> &'static str {
        match self {
            RaceKind::Iterations | RaceKind::Local => "iterations of a parallel loop",
            RaceKind::Sections => "parallel sections",
            RaceKind::Launches => "launches on different streams",
            RaceKind::Host => "the host and a launch",
        }
    }
}

impl Touch {
    /// The touch as Python names it.
    pub fn name(self) -> &'static str {
        match self {
            Touch::Read => "read",
            Touch::Write => "write",
            Touch::Update => "update",
        }
    }
}

impl Race {
    /// The race without details that vary between runs, schedules or iterations, so that reports of the same race
    /// compare equal.
    pub fn without_numbers(&self) -> Race {
        let plain = |access: &RaceAccess| RaceAccess { by: String::new(), ..access.clone() };
        let (mut first, mut second) = (plain(&self.first), plain(&self.second));
        if (&first.at, first.touch.name()) > (&second.at, second.touch.name()) {
            (first, second) = (second, first);
        }
        Race { index: None, fix: String::new(), first, second, ..self.clone() }
    }
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "race on `{}`", self.buffer)?;
        if let Some(index) = self.index.as_ref().filter(|index| !index.is_empty()) {
            let index: Vec<String> = index.iter().map(i64::to_string).collect();
            write!(f, " at index [{}]", index.join(", "))?;
        }
        writeln!(f, ": {} access it in undefined order", self.kind.subject())?;
        writeln!(f, "  {}", self.first)?;
        writeln!(f, "  {}", self.second)?;
        write!(f, "  help: {}", self.fix)
    }
}

impl fmt::Display for RaceAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let touch = match self.touch {
            Touch::Read => "reads",
            Touch::Write => "writes",
            Touch::Update => "updates",
        };
        write!(f, "{}: {} {touch}", self.at, self.by)?;
        match &self.launched_at {
            Some(at) => write!(f, ", launched at {at}"),
            None => Ok(()),
        }
    }
}
