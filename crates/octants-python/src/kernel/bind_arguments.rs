//! Binds positional and keyword arguments to a kernel's parameters.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use smallvec::SmallVec;

use super::Kernel;
use crate::errors;

/// Few enough for most kernels not to need an allocation.
pub type Arguments<'py> = SmallVec<[Bound<'py, PyAny>; 8]>;

impl Kernel {
    /// Arguments in the order of the parameters.
    #[cold]
    pub(super) fn bind<'py>(
        &self,
        py: Python<'py>,
        args: &[Bound<'py, PyAny>],
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Arguments<'py>> {
        let (prepared, _) = self.prepared(py)?;
        let params = &prepared.signature.params;
        if args.len() > params.len() {
            let shown = |items: &[Bound<'py, PyAny>]| -> String {
                let texts: Vec<String> =
                    items.iter().map(|a| a.repr().map_or_else(|_| "?".into(), |r| r.to_string())).collect();
                texts.join(", ")
            };
            let names: Vec<&str> = params.iter().map(|p| p.text.as_str()).collect();
            return Err(errors::syntax_error(
                py,
                format!(
                    "Too many arguments. Kernel `{}` takes {} ({}), got {} ({})",
                    self.name,
                    params.len(),
                    names.join(", "),
                    args.len(),
                    shown(args)
                ),
            ));
        }
        let mut bound: SmallVec<[Option<Bound<'py, PyAny>>; 8]> = args.iter().cloned().map(Some).collect();
        bound.resize_with(params.len(), || None);
        for (name, value) in kwargs.into_iter().flat_map(|d| d.iter()) {
            let name: String = name.extract()?;
            match params.iter().position(|p| p.text == name) {
                Some(i) if bound[i].is_some() => {
                    return Err(errors::syntax_error(
                        py,
                        format!("Multiple values for argument '{name}'. (kernel `{}`)", self.name),
                    ));
                }
                Some(i) => bound[i] = Some(value),
                None if name == "qd_stream" => {}
                None => {
                    let names = params.iter().map(|p| p.text.as_str());
                    let hint = octants_engine::nearest(&name, names)
                        .map_or_else(String::new, |s| format!(" Did you mean '{s}'?"));
                    return Err(errors::syntax_error(
                        py,
                        format!("Unexpected argument '{name}'.{hint} (kernel `{}`)", self.name),
                    ));
                }
            }
        }
        bound
            .into_iter()
            .zip(params)
            .map(|(value, p)| {
                value.ok_or_else(|| {
                    errors::syntax_error(py, format!("Missing argument '{}'. (kernel `{}`)", p.text, self.name))
                })
            })
            .collect()
    }
}
