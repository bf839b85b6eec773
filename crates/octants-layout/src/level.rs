//! The kinds of level, and their common properties.

/// A level or place of one [`LevelTree`](crate::LevelTree), numbered in the order of being added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LevelId(pub u32);

impl LevelId {
    /// The root of every tree.
    pub const ROOT: LevelId = LevelId(0);

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The kind of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LevelKind {
    /// The top of a tree: one cell.
    Root,
    /// All cells exist.
    Dense,
    /// Cells are active or not.
    Pointer,
    /// As `Pointer`.
    Bitmasked,
    /// A list in each cell of the level above, along one axis.
    Dynamic,
    /// A scalar component of a field.
    Place,
}

/// How cells of a level are activated, which determines the contents of its area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activity {
    /// All of them: there is no area.
    Always,
    /// Each cell is active or not: a word for each.
    PerCell,
    /// The first cells of each list are active: a word for each list, its length.
    PerList,
}

impl LevelKind {
    /// Every kind.
    pub const ALL: &[LevelKind] = &[
        LevelKind::Root,
        LevelKind::Dense,
        LevelKind::Pointer,
        LevelKind::Bitmasked,
        LevelKind::Dynamic,
        LevelKind::Place,
    ];

    /// Its name, which is also that of the method in the user's code.
    pub const fn name(self) -> &'static str {
        match self {
            LevelKind::Root => "root",
            LevelKind::Dense => "dense",
            LevelKind::Pointer => "pointer",
            LevelKind::Bitmasked => "bitmasked",
            LevelKind::Dynamic => "dynamic",
            LevelKind::Place => "place",
        }
    }

    /// The kind of a name.
    pub fn from_name(name: &str) -> Option<LevelKind> {
        LevelKind::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Which cells are active.
    pub const fn activity(self) -> Activity {
        match self {
            LevelKind::Root | LevelKind::Dense | LevelKind::Place => Activity::Always,
            LevelKind::Pointer | LevelKind::Bitmasked => Activity::PerCell,
            LevelKind::Dynamic => Activity::PerList,
        }
    }

    /// Whether cells can be inactive.
    pub fn is_sparse(self) -> bool {
        self.activity() != Activity::Always
    }
}
