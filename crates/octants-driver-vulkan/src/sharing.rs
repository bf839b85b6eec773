//! [`Sharing`]: orders the work of the default stream with that of another interface's default stream, while memory is
//! shared with it.
//!
//! Each submission of the default stream first waits for what is queued there, and later work there waits for the
//! submission: through two timeline semaphores, one for each direction, or on the host if semaphores cannot be
//! exported. The values of a timeline are reached in order, because all of them are signaled on one stream.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use octants_driver_gpu::importer::{ImportedTimeline, Importer};
use octants_runtime::Result;

use crate::gpu::Gpu;
use crate::timeline::Timeline;

/// A timeline that both interfaces know.
struct Crossing {
    timeline: Arc<Timeline>,
    imported: ImportedTimeline,
    importer: Arc<dyn Importer>,
}

impl Crossing {
    /// `None` if semaphores cannot be exported.
    fn new(gpu: &Arc<Gpu>, importer: &Arc<dyn Importer>) -> Result<Option<Crossing>> {
        let Some(exports) = gpu.exports.as_ref().filter(|e| e.has_timelines()) else { return Ok(None) };
        let timeline = Arc::new(Timeline::exported(gpu)?);
        // SAFETY: the semaphore is alive, and was created for export.
        let Some(file) = (unsafe { exports.semaphore_file(timeline.semaphore)? }) else { return Ok(None) };
        let imported = importer.import_timeline(file)?;
        Ok(Some(Crossing { timeline, imported, importer: importer.clone() }))
    }
}

impl Drop for Crossing {
    fn drop(&mut self) {
        // SAFETY: the work of both interfaces was waited for when the program ended.
        unsafe { self.importer.release_timeline(self.imported) }
    }
}

/// Both directions.
struct Link {
    /// Signaled by the default stream.
    ours: Crossing,
    our_last: AtomicU64,
    /// Signaled by the default stream there.
    theirs: Crossing,
    their_last: Mutex<u64>,
}

/// See the file's text.
pub struct Sharing {
    gpu: Arc<Gpu>,
    importer: Arc<dyn Importer>,
    /// `None` if the host waits instead.
    link: Option<Link>,
}

/// A value of a timeline.
pub(crate) type Point = (Arc<Timeline>, u64);

impl Sharing {
    /// Sets the link up.
    pub(crate) fn new(gpu: &Arc<Gpu>, importer: &Arc<dyn Importer>) -> Result<Sharing> {
        let (ours, theirs) = (Crossing::new(gpu, importer)?, Crossing::new(gpu, importer)?);
        let link = ours.zip(theirs).map(|(ours, theirs)| Link {
            ours,
            our_last: AtomicU64::new(0),
            theirs,
            their_last: Mutex::new(0),
        });
        Ok(Sharing { gpu: gpu.clone(), importer: importer.clone(), link })
    }

    /// Whether memory is shared at present.
    pub(crate) fn is_active(&self) -> bool {
        self.gpu.shared.load(Ordering::Acquire) > 0
    }

    /// The default stream there.
    pub(crate) fn unnamed_stream(&self) -> u64 {
        self.importer.unnamed_stream()
    }

    /// What work here waits for, to run after the work that is queued on a stream there. `None` if the host has waited.
    pub(crate) fn after(&self, stream: u64) -> Result<Option<Point>> {
        let Some(link) = &self.link else {
            // SAFETY: the stream is alive: the caller's contract.
            unsafe { self.importer.synchronize_stream(stream)? };
            return Ok(None);
        };
        let mut last = link.their_last.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as above; the semaphore is the importer's.
        unsafe { self.importer.signal(stream, link.theirs.imported, *last + 1)? };
        *last += 1;
        Ok(Some((link.theirs.timeline.clone(), *last)))
    }

    /// The point that the next submission of the default stream signals; `None` if the host waits for it instead.
    /// Called with the stream locked.
    pub(crate) fn next(&self) -> Option<Point> {
        let link = self.link.as_ref()?;
        Some((link.ours.timeline.clone(), link.our_last.fetch_add(1, Ordering::Relaxed) + 1))
    }

    /// Makes later work of a stream there wait for a point of [`Sharing::next`] that was submitted.
    pub(crate) fn wait_there(&self, stream: u64, point: &Point) -> Result<()> {
        match &self.link {
            // SAFETY: the stream is alive: the caller's contract.
            Some(link) => unsafe { self.importer.wait(stream, link.ours.imported, point.1) },
            None => Ok(()),
        }
    }
}
