//! [`LevelTree`]: a tree of levels as a Python object, and its layout: see octants-layout.

use octants_layout::{Activity, CellIndex, LayoutError, LevelId, LevelKind, SparseArea, TreeLayout};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::errors;
use crate::placement::Placement;

/// A tree of levels. The root is level 0; the others are numbered in the order of being added.
#[pyclass(module = "octants._octants")]
pub struct LevelTree {
    tree: octants_layout::LevelTree,
    layout: Option<TreeLayout>,
}

impl LevelTree {
    fn laid_out(&self) -> PyResult<&TreeLayout> {
        self.layout.as_ref().ok_or_else(|| PyRuntimeError::new_err("the tree is not laid out"))
    }
}

/// Errors of a tree are the user's.
fn mapped<T>(py: Python<'_>, result: Result<T, LayoutError>) -> PyResult<T> {
    result.map_err(|e| errors::runtime_error(py, e.to_string()))
}

fn kind_of(name: &str) -> PyResult<LevelKind> {
    let kind = LevelKind::from_name(name);
    kind.ok_or_else(|| PyValueError::new_err(format!("{name} is not a kind of level")))
}

#[pymethods]
impl LevelTree {
    #[new]
    fn new() -> LevelTree {
        LevelTree { tree: octants_layout::LevelTree::new(), layout: None }
    }

    /// Adds a level below another one: axes and extents, outermost in memory first. Returns its number.
    fn add_level(
        &mut self,
        py: Python<'_>,
        parent: u32,
        kind: &str,
        axes: &Bound<'_, PyTuple>,
        extents: &Bound<'_, PyTuple>,
    ) -> PyResult<u32> {
        let pair = |(axis, extent): (Bound<'_, PyAny>, Bound<'_, PyAny>)| -> PyResult<(u8, u64)> {
            // The extent is a positive integer, so it failed because of its size.
            Ok((axis.extract()?, mapped(py, extent.extract().map_err(|_| LayoutError::TooLarge))?))
        };
        let axes = axes.iter().zip(extents.iter()).map(pair).collect::<PyResult<_>>()?;
        mapped(py, self.tree.add_level(LevelId(parent), kind_of(kind)?, axes)).map(|level| level.0)
    }

    /// Raises when no level or place of a kind can be below another level.
    fn check_parent(&self, py: Python<'_>, parent: u32, kind: &str) -> PyResult<()> {
        mapped(py, self.tree.check_parent(LevelId(parent), kind_of(kind)?))
    }

    /// Puts a scalar of `nbytes` bytes into each cell of a level. Returns the number of its place.
    fn add_place(&mut self, py: Python<'_>, parent: u32, nbytes: u64) -> PyResult<u32> {
        mapped(py, self.tree.add_place(LevelId(parent), nbytes)).map(|level| level.0)
    }

    /// Number of cells along each used axis, counting the levels above.
    fn shape<'py>(&self, py: Python<'py>, level: u32) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.tree.shape(LevelId(level)))
    }

    /// Fixes sizes and places of the levels with these numbers, and of those above them. Returns the size of the memory
    /// in bytes, and whether it holds areas of sparse levels.
    fn lay_out(&mut self, py: Python<'_>, mut kept: Vec<u32>) -> PyResult<(u64, bool)> {
        kept.sort_unstable();
        let layout = self.tree.lay_out(|level| kept.binary_search(&level.0).is_ok());
        let layout = self.layout.insert(mapped(py, layout)?);
        Ok((layout.bytes(), !layout.areas().is_empty()))
    }

    /// Bytes of a cell of a level; 0 for places, and before the tree is laid out.
    fn cell_bytes(&self, level: u32) -> u64 {
        self.layout.as_ref().map_or(0, |layout| layout.cell_bytes(LevelId(level)))
    }

    /// The offset of a level in a cell of its parent; 0 before the tree is laid out.
    fn offset_in_cell(&self, level: u32) -> u64 {
        self.layout.as_ref().map_or(0, |layout| layout.offset_in_cell(LevelId(level)))
    }

    /// The placement of a component.
    fn placement(&self, place: u32) -> PyResult<Placement> {
        Ok(Placement::new(self.laid_out()?.placement(&self.tree, LevelId(place))))
    }

    /// The areas of sparse levels, in the order in which they are in memory.
    fn areas(&self) -> PyResult<Vec<Area>> {
        Ok(self.laid_out()?.areas().iter().map(|area| Area { area: area.clone() }).collect())
    }

    /// How the indices of a level or place name the cells of the sparse levels above it, outermost first; for a sparse
    /// level, its own cells come last.
    fn cell_indices(&self, level: u32) -> Vec<Cells> {
        self.tree.cell_indices(LevelId(level)).into_iter().map(|(level, index)| Cells { level, index }).collect()
    }
}

/// The area of a sparse level after the data of its tree.
#[pyclass(module = "octants._octants", frozen)]
pub struct Area {
    area: SparseArea,
}

#[pymethods]
impl Area {
    /// Number of the level.
    #[getter]
    fn level(&self) -> u32 {
        self.area.level.0
    }

    /// How many indices name a cell; of a dynamic level those of an element.
    #[getter]
    fn axes(&self) -> usize {
        self.area.axes
    }

    /// Cells of the level; of a dynamic level those of one list.
    #[getter]
    fn capacity(&self) -> u64 {
        self.area.capacity
    }

    /// Whether words of state are lengths of lists.
    #[getter]
    fn is_list(&self) -> bool {
        self.area.activity == Activity::PerList
    }

    /// Whether there is room for a list of active cells.
    #[getter]
    fn can_be_listed(&self) -> bool {
        self.area.can_be_listed
    }

    /// Words of state; with a sparse level around, cells of that one.
    #[getter]
    fn candidates(&self) -> u64 {
        self.area.candidates
    }

    /// Candidates that one thread checks when active cells are listed.
    #[getter]
    fn chunk(&self) -> u64 {
        self.area.chunk
    }

    /// Extents of the words of state within a cell of the level around.
    #[getter]
    fn inside<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.area.inside)
    }

    /// How the number of a cell of the level around, followed by indices along `inside`, names a word of state.
    #[getter]
    fn word_inside(&self) -> Cells {
        Cells { level: self.area.level, index: self.area.word_inside.clone() }
    }

    /// The words of state by the indices of a cell or list.
    #[getter]
    fn state(&self) -> Placement {
        Placement::new(self.area.state.clone())
    }

    /// The words of state by their number.
    #[getter]
    fn flat_state(&self) -> Placement {
        Placement::new(self.area.flat_state.clone())
    }

    /// The list of active cells.
    #[getter]
    fn cells(&self) -> Placement {
        Placement::new(self.area.cells.clone())
    }

    /// Active cells of each chunk.
    #[getter]
    fn counts(&self) -> Placement {
        Placement::new(self.area.counts.clone())
    }

    /// The start of each chunk's cells in the list.
    #[getter]
    fn starts(&self) -> Placement {
        Placement::new(self.area.starts.clone())
    }

    /// How many cells are listed.
    #[getter]
    fn count(&self) -> Placement {
        Placement::new(self.area.count.clone())
    }

    /// The components in a cell that are not below another sparse level: the component's number, its placement by the
    /// indices of the cell and within it, and the extents within the cell.
    #[getter]
    fn views<'py>(&self, py: Python<'py>) -> PyResult<Vec<(u32, Placement, Bound<'py, PyTuple>)>> {
        let views = self.area.views.iter();
        views.map(|v| Ok((v.place.0, Placement::new(v.placement.clone()), PyTuple::new(py, &v.inner)?))).collect()
    }

    /// The next sparse levels within a cell: number of the level, and for each axis of its state the axis of the cell's
    /// index, or -1, and the words of state along it in one cell.
    #[getter]
    fn nested<'py>(&self, py: Python<'py>) -> PyResult<Vec<(u32, Bound<'py, PyTuple>)>> {
        let axis = |(axis, words): &(Option<usize>, u64)| (axis.map_or(-1, |axis| axis as i64), *words);
        self.area.nested.iter().map(|n| Ok((n.level.0, PyTuple::new(py, n.axes.iter().map(axis))?))).collect()
    }
}

/// How the indices of a field or level name a cell of a sparse level above it.
#[pyclass(module = "octants._octants", frozen)]
pub struct Cells {
    level: LevelId,
    index: CellIndex,
}

impl Cells {
    /// As octants-layout has it.
    pub fn index(&self) -> &CellIndex {
        &self.index
    }
}

#[pymethods]
impl Cells {
    /// Number of the sparse level.
    #[getter]
    fn level(&self) -> u32 {
        self.level.0
    }

    /// For an index that counts from zero: the number of the word of state, and of a dynamic level the number of the
    /// element in its list.
    fn locate(&self, index: Vec<u64>) -> (u64, Option<u64>) {
        (self.index.number(&index), self.index.element(&index))
    }
}
