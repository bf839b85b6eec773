//! [`Memory`]: the arrays and fields of a kernel, as bytes, and the address of each element.

use std::rc::Rc;

use octants_ir::{Buffer, BufferId, Layout, MemorySpace, Scalar};

use crate::scalar::Leaf;
use crate::value::{Base, Region};

/// The contents of an array argument.
#[derive(Debug, Clone, PartialEq)]
struct Array {
    shape: Vec<u64>,
    /// Bytes from one element to the next, for each axis.
    strides: Vec<u64>,
    bytes: Vec<u8>,
}

/// The memory of a kernel's buffers.
#[derive(Debug, Clone, PartialEq)]
pub struct Memory {
    buffers: Vec<Buffer>,
    arrays: Vec<Option<Array>>,
    roots: Vec<Vec<u8>>,
}

impl Memory {
    /// Fields of zeros, and arrays without a shape.
    pub fn new(buffers: &[Buffer]) -> Memory {
        let roots = root_sizes(buffers, MemorySpace::Global).into_iter().map(|n| vec![0; n]).collect();
        Memory { buffers: buffers.to_vec(), arrays: vec![None; buffers.len()], roots }
    }

    /// Takes buffers that code has beyond those that it was made for: of blocks and threads, and in roots.
    pub(crate) fn add_buffers(&mut self, buffers: &[Buffer]) {
        let is_argument =
            |b: &Buffer| !b.space.is_temporary() && matches!(b.layout, Layout::Contiguous | Layout::Strided);
        for b in buffers.iter().skip(self.buffers.len()).filter(|b| !is_argument(b)) {
            self.buffers.push(b.clone());
            self.arrays.push(None);
        }
        assert_eq!(self.buffers.len(), buffers.len(), "memory is that of the code's buffers");
        let sizes = root_sizes(buffers, MemorySpace::Global);
        self.roots.resize_with(self.roots.len().max(sizes.len()), Vec::new);
        for (root, size) in self.roots.iter_mut().zip(sizes) {
            root.resize(root.len().max(size), 0);
        }
    }

    /// The shape of a buffer; `None` for an array that was given none.
    pub fn shape(&self, b: BufferId) -> Option<Vec<u64>> {
        match &self.buffers[b.index()].layout {
            Layout::Dense { shape, .. } => Some(shape.clone()),
            Layout::Flat(of) => {
                let elements: u64 = self.shape(*of)?.iter().product();
                Some(vec![elements * self.buffers[of.index()].elem.leaf_count() as u64])
            }
            Layout::Contiguous | Layout::Strided => self.arrays[b.index()].as_ref().map(|a| a.shape.clone()),
        }
    }

    /// Gives an array a shape and zeros.
    ///
    /// Axes of a strided array are in memory in the reverse order, so that code which takes it for a contiguous one
    /// computes something else.
    pub fn allocate(&mut self, b: BufferId, shape: &[u64]) {
        let buffer = &self.buffers[b.index()];
        let reversed = match buffer.layout {
            Layout::Dense { .. } | Layout::Flat(_) => return,
            Layout::Contiguous => false,
            Layout::Strided => true,
        };
        let mut next = element_bytes(buffer);
        let mut strides = vec![0; shape.len()];
        for k in 0..shape.len() {
            let axis = if reversed { k } else { shape.len() - 1 - k };
            strides[axis] = next;
            next *= shape[axis];
        }
        self.arrays[b.index()] = Some(Array { shape: shape.to_vec(), strides, bytes: vec![0; next as usize] });
    }

    /// Fills a buffer: the leaves of its elements, row-major by index.
    pub fn set(&mut self, b: BufferId, shape: &[u64], leaves: &[Leaf]) {
        self.allocate(b, shape);
        let s = scalar(&self.buffers[b.index()]);
        let places = self.places(b);
        assert_eq!(places.len(), leaves.len(), "scalars of {}", self.buffers[b.index()].name);
        for ((region, offset), leaf) in places.into_iter().zip(leaves) {
            write_bytes(self.region_mut(region), offset, s, leaf.to_bits(s)).expect("an element is inside");
        }
    }

    /// The contents of a buffer: the leaves of its elements, row-major by index.
    pub fn get(&self, b: BufferId) -> Vec<Leaf> {
        let s = scalar(&self.buffers[b.index()]);
        let read = |(region, offset)| read_bytes(self.region(region), offset, s).expect("an element is inside");
        self.places(b).into_iter().map(|place| Leaf::from_bits(read(place), s)).collect()
    }

    /// The bytes of an array argument, as a device would hold them.
    pub fn bytes(&self, b: BufferId) -> &[u8] {
        self.region(Region::Array(b.0))
    }

    /// The positions of a buffer's leaves, in the order of its elements.
    fn places(&self, b: BufferId) -> Vec<(Region, u64)> {
        let buffer = &self.buffers[b.index()];
        let Some(shape) = self.shape(b) else { return Vec::new() };
        let first: Vec<i64> = match &buffer.layout {
            Layout::Dense { offset, .. } => offset.clone(),
            Layout::Contiguous | Layout::Strided | Layout::Flat(_) => vec![0; shape.len()],
        };
        let mut places = Vec::new();
        for linear in 0..shape.iter().product() {
            let mut index = first.clone();
            let mut rest: u64 = linear;
            for (i, n) in index.iter_mut().zip(&shape).rev() {
                *i += (rest % n) as i64;
                rest /= n;
            }
            match self.locate(b, &index) {
                Base::Element(region, offset) => {
                    let bytes = u64::from(scalar(buffer).bytes());
                    places.extend((0..buffer.elem.leaf_count() as u64).map(|k| (region, offset + k * bytes)));
                }
                Base::Components(all) => places.extend(all.iter()),
                other => panic!("{other:?} is not an element of {}", buffer.name),
            }
        }
        places
    }

    /// The element of an index.
    pub(crate) fn locate(&self, b: BufferId, index: &[i64]) -> Base {
        let buffer = &self.buffers[b.index()];
        let outside = || Base::Outside(format!("{index:?} is out of bounds of `{}`", buffer.name).into());
        let Some(shape) = self.shape(b) else {
            return Base::Outside(format!("`{}` was not given", buffer.name).into());
        };
        let Layout::Dense { offset, components, .. } = &buffer.layout else {
            if index.iter().zip(&shape).any(|(i, n)| !(0..*n as i64).contains(i)) {
                return outside();
            }
            if let Layout::Flat(of) = buffer.layout {
                return Base::Element(Region::Array(of.0), index[0] as u64 * element_bytes(buffer));
            }
            let Some(array) = &self.arrays[b.index()] else { return outside() };
            let at = index.iter().zip(&array.strides).map(|(i, s)| *i as u64 * s).sum();
            return Base::Element(Region::Array(b.0), at);
        };
        let from_zero: Vec<i64> = index.iter().zip(offset).map(|(i, first)| i.wrapping_sub(*first)).collect();
        if from_zero.iter().zip(&shape).any(|(i, n)| !(0..*n as i64).contains(i)) {
            return outside();
        }
        let from_zero: Vec<u64> = from_zero.into_iter().map(|i| i as u64).collect();
        let place = |c: &octants_ir::ComponentLayout| {
            let region = match buffer.space {
                MemorySpace::Global => Region::Root(c.root),
                MemorySpace::Shared => Region::Shared(c.root),
                MemorySpace::Private => Region::Private(c.root),
                MemorySpace::Copies => panic!("compiler bug: a private copy that is not dense"),
            };
            (region, c.place.offset_of(&from_zero))
        };
        Base::Components(components.iter().map(place).collect::<Rc<[_]>>())
    }

    /// The bytes of a root or an array.
    pub(crate) fn region(&self, region: Region) -> &[u8] {
        match region {
            Region::Root(i) => &self.roots[i as usize],
            Region::Array(i) => self.arrays[i as usize].as_ref().map_or(&[], |a| &a.bytes),
            Region::Shared(_) | Region::Private(_) => panic!("compiler bug: thread memory among the buffers"),
        }
    }

    pub(crate) fn region_mut(&mut self, region: Region) -> &mut [u8] {
        match region {
            Region::Root(i) => &mut self.roots[i as usize],
            Region::Array(i) => self.arrays[i as usize].as_mut().map_or(&mut [], |a| &mut a.bytes),
            Region::Shared(_) | Region::Private(_) => panic!("compiler bug: thread memory among the buffers"),
        }
    }
}

/// The scalar of a buffer's elements.
pub(crate) fn scalar(buffer: &Buffer) -> Scalar {
    buffer.elem.scalar().expect("elements of buffers are scalars, vectors or matrices")
}

fn element_bytes(buffer: &Buffer) -> u64 {
    buffer.elem.leaf_count() as u64 * u64::from(scalar(buffer).bytes())
}

/// The bytes of each root of a space.
pub(crate) fn root_sizes(buffers: &[Buffer], space: MemorySpace) -> Vec<usize> {
    let mut sizes: Vec<usize> = Vec::new();
    for b in buffers.iter().filter(|b| b.space == space) {
        let Layout::Dense { components, .. } = &b.layout else { continue };
        for c in components {
            let (root, end) = (c.root as usize, c.place.end(u64::from(scalar(b).bytes())) as usize);
            sizes.resize(sizes.len().max(root + 1), 0);
            sizes[root] = sizes[root].max(end);
        }
    }
    sizes
}

fn range(bytes: &[u8], offset: u64, s: Scalar) -> Result<std::ops::Range<usize>, String> {
    let n = s.bytes() as usize;
    let first = usize::try_from(offset).ok().filter(|first| first.saturating_add(n) <= bytes.len());
    first
        .map(|first| first..first + n)
        .ok_or_else(|| format!("byte {offset} is out of bounds of {} bytes", bytes.len()))
}

/// Reads a scalar.
pub(crate) fn read_bytes(bytes: &[u8], offset: u64, s: Scalar) -> Result<u64, String> {
    let mut word = [0; 8];
    let range = range(bytes, offset, s)?;
    word[..range.len()].copy_from_slice(&bytes[range]);
    Ok(u64::from_le_bytes(word))
}

/// Writes a scalar.
pub(crate) fn write_bytes(bytes: &mut [u8], offset: u64, s: Scalar, bits: u64) -> Result<(), String> {
    let range = range(bytes, offset, s)?;
    let n = range.len();
    bytes[range].copy_from_slice(&bits.to_le_bytes()[..n]);
    Ok(())
}
