//! [`Placement`]: where a component lies in a buffer, as a Python object: see octants-layout.

use octants_layout::{Digit, SharedAxis};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// For each axis its digits, outermost first: extent and stride in bytes.
type Axes = Vec<Vec<(u64, u64)>>;

/// The position of a component in a buffer. `Placement(base, axes)`.
#[pyclass(module = "octants._octants", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub struct Placement {
    place: octants_layout::Placement,
}

impl Placement {
    /// The placement of a component of a tree.
    pub fn new(place: octants_layout::Placement) -> Placement {
        Placement { place }
    }

    /// As octants-layout has it.
    pub fn get(&self) -> &octants_layout::Placement {
        &self.place
    }
}

#[pymethods]
impl Placement {
    #[new]
    fn from_digits(base: u64, axes: Axes) -> Placement {
        let digits = |digits: Vec<(u64, u64)>| digits.into_iter().map(|(extent, stride)| Digit { extent, stride });
        let axes = axes.into_iter().map(|axis| digits(axis).collect()).collect();
        Placement { place: octants_layout::Placement { base, axes } }
    }

    /// The components of an array without gaps, from byte `first` on. `order` lists the axes, outermost first. The
    /// components of an element are adjacent, `itemsize` bytes each.
    #[staticmethod]
    fn of_array(
        first: u64,
        shape: Vec<u64>,
        order: Option<Vec<usize>>,
        itemsize: u64,
        components: u64,
    ) -> Vec<Placement> {
        let element_bytes = itemsize.saturating_mul(components);
        let order = order.unwrap_or_else(|| (0..shape.len()).collect());
        let place = octants_layout::Placement::in_order(first, &shape, &order, element_bytes);
        let at = |n| octants_layout::Placement { base: first.saturating_add(n * itemsize), axes: place.axes.clone() };
        (0..components).map(|n| Placement { place: at(n) }).collect()
    }

    /// Byte offset of index zero.
    #[getter]
    fn base(&self) -> u64 {
        self.place.base
    }

    /// For each axis its digits (extent, stride in bytes), outermost first.
    #[getter]
    fn axes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let digits = |digits: &Vec<Digit>| PyTuple::new(py, digits.iter().map(|d| (d.extent, d.stride)));
        PyTuple::new(py, self.place.axes.iter().map(digits).collect::<PyResult<Vec<_>>>()?)
    }

    /// Extent of each axis.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.place.shape())
    }

    /// The same elements in a part of the buffer that begins at byte `low`.
    fn relative_to(&self, low: u64) -> Placement {
        let base = self.place.base.wrapping_sub(low);
        Placement { place: octants_layout::Placement { base, axes: self.place.axes.clone() } }
    }

    /// The values of all digits of an index that counts from zero, axis by axis, outermost first.
    fn digits_of<'py>(&self, py: Python<'py>, index: Vec<u64>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.place.digits_of(&index))
    }

    /// The first byte of the component and the one past its last.
    fn span(&self, itemsize: u64) -> (u64, u64) {
        (self.place.base, self.place.end(itemsize))
    }

    /// First byte and number of bytes, when the items fill a range without gaps; `components` as of [`common_step`].
    fn gapless_range(&self, itemsize: u64, components: u64, step: i64) -> Option<(u64, u64)> {
        // Components with negative or zero strides do not fill a range.
        let stride = u64::try_from(step).ok()?;
        let range = self.place.gapless_range(itemsize, Digit { extent: components, stride })?;
        Some((range.start, range.end - range.start))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Placement(base={}, axes={})", self.place.base, self.axes(py)?.repr()?))
    }
}

/// The byte offset of each component of an element; indices count from zero.
#[pyfunction]
pub fn component_offsets(placements: Vec<PyRef<'_, Placement>>, index: Vec<u64>) -> Vec<u64> {
    placements.iter().map(|p| p.place.offset_of(&index)).collect()
}

/// The distance in bytes between the components of an element, if it is constant.
#[pyfunction]
pub fn common_step(placements: Vec<PyRef<'_, Placement>>) -> Option<i64> {
    octants_layout::common_step(placements.iter().map(|p| &p.place))
}

/// An axis: its extent, and a stride in bytes for each placement.
type Axis = (u64, Vec<i64>);

/// The elements of placements as arrays of the same extents, with as few axes as possible: see octants-layout.
#[pyfunction]
#[pyo3(signature = (placements, components = None))]
pub fn shared_axes(placements: Vec<PyRef<'_, Placement>>, components: Option<Axis>) -> Option<Vec<Axis>> {
    let placements: Vec<_> = placements.iter().map(|p| &p.place).collect();
    let components = components.map(|(extent, strides)| SharedAxis { extent, strides });
    let axes = octants_layout::shared_axes(&placements, components)?;
    Some(axes.into_iter().map(|axis| (axis.extent, axis.strides)).collect())
}
