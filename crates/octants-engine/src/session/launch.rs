//! Launches: allocates the store of a gradient that needs one, and skips launches whose results are cached.

use std::sync::Arc;

use octants_runtime::{
    Buffer, Caller, CounterSnapshot, DeviceError, ErrorKind, HostArray, HostStep, LaunchOrder, Results, Stream, nesting,
};

use super::build::{Launching, TripSlots};
use super::{Executable, Session};
use crate::error::Error;
use crate::gradient_store::{Counted, GradientStore, Lanes, StoreOfEachRun};
use crate::known_results::KnownResults;

/// Threads of a block, as a rule.
const BLOCK: u64 = 256;

impl Session {
    /// Runs code on a stream, the default one for `None`: `slots` are the argument slots of its layout, `arrays` those
    /// that hold addresses in the host's memory, which are irrelevant to a device that executes immediately. `caller`
    /// is notified before this thread works or waits for long. In debug mode, a launch on the default stream waits for
    /// its work, so that the call returns its errors. Launches on other streams do not wait.
    ///
    /// # Safety
    /// `slots` holds what the code expects: addresses of live memory, true extents, values of the parameters.
    #[inline]
    pub unsafe fn launch(
        &self,
        code: &Executable,
        slots: &[u64],
        arrays: &[HostArray],
        stream: Option<&Stream>,
        caller: &dyn Caller,
    ) -> Result<Option<Results>, Error> {
        let stream = self.stream_or_default(stream)?;
        self.check_launch(code, slots, stream, caller)?;
        if code.watched.is_some() || code.trips.is_some() {
            let (slots, _trips) = self.add_slots(code, stream, slots)?;
            // SAFETY: the caller's contract; the session keeps the memory of words, and that of trip counts is freed in
            // stream order.
            return unsafe { self.launch_filled(code, &slots, arrays, stream, caller) };
        }
        // SAFETY: the caller's contract.
        unsafe { self.launch_filled(code, slots, arrays, stream, caller) }
    }

    /// The slots of a launch with race checks or recorded trip counts. The memory of trip counts that no gradient will
    /// read is returned.
    #[cold]
    fn add_slots(
        &self,
        code: &Executable,
        stream: &Stream,
        slots: &[u64],
    ) -> Result<(Vec<u64>, Option<Buffer>), Error> {
        let mut slots = slots.to_vec();
        if let Some(races) = &code.watched {
            self.race_words.fill(&self.device, races, stream, &mut slots)?;
        }
        let trips = match code.trips {
            Some(trips) if slots[trips.slot as usize] == 0 => {
                if trips.is_read {
                    return Err(no_trips(code.name()).into());
                }
                self.record_loop_trips(code, &mut slots, None)?
            }
            _ => None,
        };
        Ok((slots, trips))
    }

    /// Memory for the trip counts that a launch with these slots records, if it does: `reused` if it fits.
    ///
    /// # Errors
    /// The driver's.
    pub fn record_loop_trips(
        &self,
        code: &Executable,
        slots: &mut [u64],
        reused: Option<&Buffer>,
    ) -> Result<Option<Buffer>, Error> {
        let Some(trips) = code.trips.filter(|trips| !trips.is_read) else { return Ok(None) };
        let bytes = trips.elements * 8;
        let buffer = match reused.filter(|reused| reused.bytes() == bytes) {
            Some(reused) => reused.clone(),
            None => self.device.allocate_unset(bytes)?,
        };
        set_trips(trips, slots, &buffer)?;
        Ok(Some(buffer))
    }

    /// # Safety
    /// That of [`Session::launch`].
    #[inline]
    unsafe fn launch_filled(
        &self,
        code: &Executable,
        slots: &[u64],
        arrays: &[HostArray],
        stream: &Stream,
        caller: &dyn Caller,
    ) -> Result<Option<Results>, Error> {
        let results = match &code.launching {
            // SAFETY: the caller's contract.
            Launching::Plain => {
                unsafe { self.device.launch(stream, &code.kernel, slots, arrays, (caller, Some(self))) }?
            }
            // SAFETY: the caller's contract.
            Launching::WithStore(store) => {
                unsafe { self.launch_with_store(code, store, slots, arrays, stream, caller) }?
            }
            // SAFETY: the caller's contract.
            Launching::ResultOnly(known) => unsafe { self.find_results(code, known, slots, arrays, stream, caller) }?,
        };
        self.wait_for_default(stream, caller)?;
        Ok(results)
    }

    #[inline]
    fn wait_for_default(&self, stream: &Stream, caller: &dyn Caller) -> Result<(), Error> {
        // The program does not wait, so race checks do not take this for an order.
        if self.waits_after(stream) { Ok(nesting::unnoticed(|| stream.synchronize(caller))?) } else { Ok(()) }
    }

    /// Whether a launch on this stream waits for its work: on the default stream, in debug mode and if race checks have
    /// made the CPU's streams real.
    #[inline]
    pub fn waits_after(&self, stream: &Stream) -> bool {
        let waits = self.waits_for_default || self.config().debug;
        waits && stream.number() == 0 && !self.device.is_immediate() && !nesting::capturing()
    }

    /// As [`Session::launch`] for the gradient of an earlier launch: the counters have the values of that launch. With
    /// an order, it runs after the launches that it depends on.
    ///
    /// # Safety
    /// That of [`Session::launch`].
    pub unsafe fn launch_following(
        &self,
        (order, counters): (Option<&LaunchOrder>, &CounterSnapshot),
        code: &Executable,
        slots: &[u64],
        arrays: &[HostArray],
        stream: Option<&Stream>,
        caller: &dyn Caller,
    ) -> Result<Option<Results>, Error> {
        let on = self.stream_or_default(stream)?;
        let filled;
        let slots = match (code.trips.filter(|trips| trips.is_read), counters.trips()) {
            (Some(trips), Some(recorded)) if recorded.bytes() == trips.elements * 8 => {
                let mut slots = slots.to_vec();
                set_trips(trips, &mut slots, recorded)?;
                filled = slots;
                &filled
            }
            _ => slots,
        };
        // SAFETY: the caller's contract.
        let launch = || unsafe { self.launch(code, slots, arrays, stream, caller) };
        in_order((order, counters), (code, slots), (on, caller), launch)
    }

    /// Records a launch in this thread's capture, which the host makes at each launch of the graph by performing
    /// `step`. `follows` is as for [`Session::launch_following`], if the launch is a gradient.
    ///
    /// # Errors
    /// That the launch cannot be captured.
    pub fn capture_host_launch(
        &self,
        follows: Option<(Option<&LaunchOrder>, &CounterSnapshot)>,
        code: &Executable,
        (slots, arrays): (&[u64], &[HostArray]),
        (stream, caller): (Option<&Stream>, &dyn Caller),
        step: Arc<HostStep>,
    ) -> Result<(), Error> {
        let on = self.stream_or_default(stream)?;
        self.check_launch(code, slots, on, caller)?;
        let note = || Ok(on.capture_host_launch(&code.kernel, slots, arrays, step)?);
        match follows {
            Some(follows) => in_order(follows, (code, slots), (on, caller), note),
            None => note(),
        }
    }

    /// The values of the counters of a kernel's loops before a launch.
    ///
    /// # Errors
    /// The driver's; that a counter is not in memory of the device.
    pub fn save_counters(
        &self,
        code: &Executable,
        slots: &[u64],
        stream: Option<&Stream>,
        caller: &dyn Caller,
    ) -> Result<CounterSnapshot, Error> {
        let stream = self.stream_or_default(stream)?;
        Ok(CounterSnapshot::of(stream, &code.kernel, slots, caller)?)
    }

    /// As [`Session::launch`] for code with checkpoints, from the one with this label on if there is a label. Returns
    /// the label of the checkpoint at which the launch ended, if it ended early.
    ///
    /// # Safety
    /// That of [`Session::launch`].
    pub unsafe fn launch_from(
        &self,
        code: &Executable,
        slots: &[u64],
        arrays: &[HostArray],
        stream: Option<&Stream>,
        resumes_at: Option<i64>,
        caller: &dyn Caller,
    ) -> Result<Option<i64>, Error> {
        let stream = self.stream_or_default(stream)?;
        self.check_launch(code, slots, stream, caller)?;
        let has_more = code.watched.is_some() || code.trips.is_some();
        let added = has_more.then(|| self.add_slots(code, stream, slots)).transpose()?;
        let slots = added.as_ref().map_or(slots, |(slots, _)| slots);
        // SAFETY: the caller's contract.
        let ended_at = unsafe { stream.launch_from(&code.kernel, slots, arrays, resumes_at, caller)? };
        self.wait_for_default(stream, caller)?;
        Ok(ended_at)
    }

    /// The requested stream of a launch; `None` means the default stream.
    #[inline]
    fn stream_or_default<'a>(&'a self, stream: Option<&'a Stream>) -> Result<&'a Stream, Error> {
        match stream {
            None => Ok(self.device.default_stream()),
            Some(stream) if self.device.owns(stream) => Ok(stream),
            Some(_) => Err(DeviceError::from(ErrorKind::ForeignDevice { what: "stream" }).into()),
        }
    }

    /// Refuses a launch whose iterations race, or that races with another launch, if that is looked for.
    #[inline]
    fn check_launch(
        &self,
        code: &Executable,
        slots: &[u64],
        stream: &Stream,
        caller: &dyn Caller,
    ) -> Result<(), Error> {
        if let Some(races) = code.races.as_ref().filter(|races| races.is_open()) {
            self.device.races().report(races.find(slots))?;
        }
        Ok(self.device.check_launch(stream, &code.kernel, slots, caller)?)
    }

    /// Counts the values that a gradient must store, allocates the store and runs the gradient.
    ///
    /// # Safety
    /// That of [`Session::launch`].
    #[cold]
    unsafe fn launch_with_store(
        &self,
        code: &Executable,
        store: &Arc<GradientStore>,
        slots: &[u64],
        arrays: &[HostArray],
        stream: &Stream,
        caller: &dyn Caller,
    ) -> Result<Option<Results>, Error> {
        let count = &*store.count;
        let counts_by_arguments = match &count.launching {
            Launching::ResultOnly(known) => known.on().addresses.is_empty(),
            _ => false,
        };
        if nesting::capturing() && !counts_by_arguments {
            // Each launch of the graph counts again.
            let each = StoreOfEachRun { store: store.clone(), lanes: self.lanes(code), device: self.device.clone() };
            stream.capture_counted(&code.kernel, slots, arrays, Arc::new(each))?;
            return Ok(None);
        }
        let mut slots = slots.to_vec();
        // SAFETY: the counting kernel has the arguments of the gradient, and does not use the store.
        let counted = nesting::outside_of_captures(|| match &count.launching {
            Launching::ResultOnly(known) => unsafe { self.find_results(count, known, &slots, arrays, stream, caller) },
            _ => Ok(unsafe { stream.launch_with(&count.kernel, &slots, arrays, caller) }?),
        })?;
        let counted = Counted::of(&counted.expect("compiler bug: a store is counted without a result"));
        let buffers = store.make(counted, self.lanes(code), &mut slots, |bytes| self.device.allocate_unset(bytes))?;
        // SAFETY: the caller's contract. The store lives until the work that uses it has run, because its memory is
        // freed in stream order.
        let results = unsafe { stream.launch_with(&code.kernel, &slots, arrays, caller) };
        drop(buffers);
        Ok(results?)
    }

    /// Cached results of code without side effects, if still valid.
    ///
    /// # Safety
    /// That of [`Session::launch`].
    #[cold]
    unsafe fn find_results(
        &self,
        code: &Executable,
        known: &KnownResults,
        slots: &[u64],
        arrays: &[HostArray],
        stream: &Stream,
        caller: &dyn Caller,
    ) -> Result<Option<Results>, Error> {
        let asked = known.ask(stream, slots, arrays);
        if let Some(results) = asked.as_ref().and_then(|asked| known.get(asked)) {
            return Ok(Some(results));
        }
        // SAFETY: the caller's contract.
        let results = unsafe { stream.launch_with(&code.kernel, slots, arrays, caller) }?;
        if let (Some(asked), Some(results)) = (asked, &results) {
            known.keep(asked, results);
        }
        Ok(results)
    }

    fn lanes(&self, code: &Executable) -> Lanes {
        let most_bytes = match self.config().ad_store_bytes {
            0 => u64::MAX,
            bytes => bytes,
        };
        if self.device.is_host_addressable() {
            let threads = match self.config().cpu_max_num_threads {
                0 => std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
                n => u64::from(n),
            };
            // More lanes than threads, so that uneven ones balance.
            let most = threads * 8;
            return Lanes { most, at_once: most, even: None, neighbors: true, most_bytes };
        }
        // As many lanes as run concurrently: with more, less of the store fits into the caches, and the last ones run
        // while most of the device is idle. If that takes too much memory, as many as keep one multiprocessor busy.
        let most = code.kernel.max_resident_threads().unwrap_or(1 << 17);
        Lanes { most, at_once: most.min(1 << 16), even: Some(BLOCK), neighbors: false, most_bytes }
    }
}

/// Sets the arguments that describe recorded trip counts.
fn set_trips(trips: TripSlots, slots: &mut [u64], recorded: &Buffer) -> Result<(), Error> {
    let slot = trips.slot as usize;
    (slots[slot], slots[slot + 1]) = (recorded.ptr()?, trips.elements);
    Ok(())
}

fn no_trips(gradient: &str) -> DeviceError {
    let message = format!(
        "the gradient of kernel `{}` needs the trip counts of its loops, which each launch records if a field or an \
         array has a gradient: launch the kernel with these arguments before, or use a tape",
        gradient.trim_end_matches("_grad")
    );
    ErrorKind::Misuse { message }.into()
}

/// Makes a launch with the recorded values of its counters, after the launches of an order that it conflicts with.
fn in_order<T>(
    (order, counters): (Option<&LaunchOrder>, &CounterSnapshot),
    (code, slots): (&Executable, &[u64]),
    (on, caller): (&Stream, &dyn Caller),
    launch: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let launch = || counters.restored(on, caller, launch);
    match order {
        Some(order) => order.launch(on, (&code.kernel, slots, counters), launch),
        None => launch(),
    }
}
