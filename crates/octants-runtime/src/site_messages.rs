//! Messages of a kernel's sites: printed text and assertion failures, with the values that the code passes.

use octants_artifact::SiteKind;

use crate::driver::Launch;
use crate::kernel_meta::KernelMeta;
use crate::race::Race;
use crate::render_site::render_site;
use crate::report::{Failure, Failures, Printer};

/// Prints the text of a kernel's site.
pub(crate) fn print_site(kernel: &KernelMeta, printer: &Printer, site: u32, values: &[u64]) {
    let mut text = String::new();
    let found = kernel.sites.get(site as usize);
    // A kernel's address distinguishes its sites from those of other kernels while a launch of it is in progress.
    if found.is_some_and(|s| s.kind == SiteKind::Report) && !printer.is_first((std::ptr::from_ref(kernel).addr(), site))
    {
        return;
    }
    match found {
        Some(s) => render_site(&mut text, s, values),
        None => text.push_str("compiler bug: print at an unknown site\n"),
    }
    printer.print(&text);
}

/// Records the failure of an assertion at a kernel's site, in a step of a captured graph if it is one.
pub(crate) fn fail_at_site((kernel, step): (&KernelMeta, Option<u32>), failures: &Failures, site: u32, values: &[u64]) {
    failures.record(|| {
        let mut message = String::new();
        let mut location = String::new();
        let mut race = None;
        match kernel.sites.get(site as usize) {
            Some(s) => {
                race = (s.kind == SiteKind::Race).then(|| Box::new(Race::at_site(s, values)));
                render_site(&mut message, s, values);
                location.clone_from(&s.location);
            }
            None => message.push_str("compiler bug: assertion at an unknown site"),
        }
        Failure { kernel: kernel.name.clone(), message, location, step, stream: 0, race }
    });
}

impl Launch<'_> {
    /// Prints the text of a site.
    pub fn print(&self, site: u32, values: &[u64]) {
        print_site(self.kernel, self.printer, site, values);
    }

    /// Records the failure of an assertion at a site.
    pub fn fail(&self, site: u32, values: &[u64]) {
        fail_at_site((self.kernel, self.step), self.failures, site, values);
    }
}
