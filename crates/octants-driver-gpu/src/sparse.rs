//! [`SparseLibraries`]: the vendor's sparse libraries, behind the runtime's traits.
//!
//! Such a library works on the thread's current device, as the driver does: its calls take [`Entered`].

use std::fmt;
use std::sync::Arc;

use octants_runtime::{DevicePtr, Factors, MatrixRows, ProductCalls, Result, SolverCalls, SparseWork, StreamHandle};

use crate::context::{Context, Entered};
use crate::streams::Streams;
use crate::symbols::{Address, RawStream};

/// The libraries of a vendor. They are searched for on first use.
#[allow(clippy::missing_safety_doc)] // The contracts are those of the runtime's traits.
pub trait SparseLibraries: fmt::Debug + Send + Sync {
    /// Why there is none for this work: a sentence for the user.
    fn missing(&self, calls: &Entered<'_>, work: SparseWork) -> Option<String>;

    /// Creates a matrix for products.
    unsafe fn product(&self, calls: &Entered<'_>, matrix: &MatrixRows) -> Result<Box<dyn VendorProduct>>;

    /// Creates a system's matrix.
    unsafe fn solver(
        &self,
        calls: &Entered<'_>,
        matrix: &MatrixRows,
        factors: Factors,
    ) -> Result<Box<dyn VendorSolver>>;
}

/// [`ProductCalls`] on a vendor's stream. Dropped while the device is the thread's own.
#[allow(clippy::missing_safety_doc)] // As above.
pub trait VendorProduct: Send {
    /// As there.
    fn workspace_bytes(&self) -> u64;

    /// As there.
    unsafe fn multiply(&mut self, stream: RawStream, workspace: Address, x: Address, y: Address) -> Result<()>;
}

/// [`SolverCalls`] on a vendor's stream. Dropped while the device is the thread's own.
#[allow(clippy::missing_safety_doc)] // As above.
pub trait VendorSolver: Send {
    /// As there.
    unsafe fn analyze(&mut self, stream: RawStream) -> Result<()>;

    /// As there.
    unsafe fn factorize(&mut self, stream: RawStream, values: Address) -> Result<Option<String>>;

    /// As there.
    unsafe fn solve(&mut self, stream: RawStream, right: Address, solution: Address) -> Result<()>;
}

/// A vendor's calls, with the driver's context.
pub(crate) struct OnDevice<T: ?Sized> {
    pub(crate) context: Arc<Context>,
    pub(crate) streams: Arc<Streams>,
    /// `None` only during `drop`.
    pub(crate) calls: Option<Box<T>>,
}

impl<T: ?Sized> OnDevice<T> {
    fn calls(&mut self) -> &mut T {
        self.calls.as_mut().expect("compiler bug: the vendor's calls were used after their drop")
    }
}

impl<T: ?Sized> Drop for OnDevice<T> {
    fn drop(&mut self) {
        let calls = self.calls.take();
        match self.context.enter_to_free() {
            Some(_entered) => drop(calls),
            // The library has shut down, which has freed everything.
            None => std::mem::forget(calls),
        }
    }
}

impl ProductCalls for OnDevice<dyn VendorProduct> {
    fn workspace_bytes(&self) -> u64 {
        self.calls.as_ref().map_or(0, |calls| calls.workspace_bytes())
    }

    unsafe fn multiply(
        &mut self,
        stream: StreamHandle,
        workspace: DevicePtr,
        x: DevicePtr,
        y: DevicePtr,
    ) -> Result<()> {
        let (context, stream) = (self.context.clone(), self.streams.resolve(stream));
        let _entered = context.enter()?;
        // SAFETY: the trait's contract.
        unsafe { self.calls().multiply(stream, workspace.0, x.0, y.0) }
    }
}

impl SolverCalls for OnDevice<dyn VendorSolver> {
    unsafe fn analyze(&mut self, stream: StreamHandle) -> Result<()> {
        let (context, stream) = (self.context.clone(), self.streams.resolve(stream));
        let _entered = context.enter_aside()?;
        // SAFETY: the trait's contract.
        unsafe { self.calls().analyze(stream) }
    }

    unsafe fn factorize(&mut self, stream: StreamHandle, values: DevicePtr) -> Result<Option<String>> {
        let (context, stream) = (self.context.clone(), self.streams.resolve(stream));
        let _entered = context.enter_aside()?;
        // SAFETY: the trait's contract.
        unsafe { self.calls().factorize(stream, values.0) }
    }

    unsafe fn solve(&mut self, stream: StreamHandle, right: DevicePtr, solution: DevicePtr) -> Result<()> {
        let (context, stream) = (self.context.clone(), self.streams.resolve(stream));
        let _entered = context.enter_aside()?;
        // SAFETY: the trait's contract.
        unsafe { self.calls().solve(stream, right.0, solution.0) }
    }
}
