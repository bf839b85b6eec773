//! [`Caller`]: the thread that calls the runtime: what it does before it waits, and whether it may be interrupted.

use crate::dispatcher::Dispatcher;

/// The thread that launches.
pub trait Caller {
    /// Called before the thread waits or works for long (tens of microseconds), so that it can release locks that other
    /// threads need. May be called more than once in a launch; never called while the caller could re-enter the
    /// launcher.
    fn will_block(&self);

    /// `path:line` of the call in the program, if known.
    fn call_site(&self) -> Option<String> {
        None
    }

    /// Whether it may ever be interrupted.
    fn can_be_interrupted(&self) -> bool {
        false
    }

    /// Whether the user has interrupted the thread, which must then abandon its work or wait. Polled after
    /// [`Caller::will_block`], where the caller's own code may run.
    fn is_interrupted(&self) -> bool {
        false
    }

    /// The dispatcher that runs the tasks of a kernel on split arrays.
    fn dispatcher(&self) -> Option<&dyn Dispatcher> {
        None
    }
}

/// A caller that blocks no other threads while it waits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Uninterruptible;

impl Caller for Uninterruptible {
    fn will_block(&self) {}
}

/// A thread whose launches on split arrays a dispatcher runs.
pub struct DispatchingCaller<'a> {
    /// The thread.
    pub caller: &'a dyn Caller,
    /// Runs the tasks.
    pub dispatcher: &'a dyn Dispatcher,
}

impl Caller for DispatchingCaller<'_> {
    fn will_block(&self) {
        self.caller.will_block();
    }

    fn call_site(&self) -> Option<String> {
        self.caller.call_site()
    }

    fn can_be_interrupted(&self) -> bool {
        self.caller.can_be_interrupted()
    }

    fn is_interrupted(&self) -> bool {
        self.caller.is_interrupted()
    }

    fn dispatcher(&self) -> Option<&dyn Dispatcher> {
        Some(self.dispatcher)
    }
}
