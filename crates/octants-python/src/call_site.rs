//! [`call_site`]: the line of the user's program that makes a call.

use pyo3::prelude::*;

use crate::package::Package;

/// `path:line` of the innermost frame that is not the package's own.
pub fn call_site(py: Python<'_>) -> PyResult<Option<String>> {
    let package = &Package::get(py)?.folder;
    let mut frame = py.import("sys")?.call_method1("_getframe", (0,))?;
    loop {
        let code = frame.getattr("f_code")?;
        let path: String = code.getattr("co_filename")?.extract()?;
        if !path.starts_with(package) {
            return Ok(Some(format!("{path}:{}", frame.getattr("f_lineno")?)));
        }
        frame = frame.getattr("f_back")?;
        if frame.is_none() {
            return Ok(None);
        }
    }
}
