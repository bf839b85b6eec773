//! A kernel's code for any supported machine, as text or bytes for people to read. The machine need not be present.

use octants_analysis::describe_access;
use octants_passes::unwrap_rows;
use octants_schedule::{describe_schedule, schedule_program};

use crate::backend::CodeForm;
use crate::error::Error;
use crate::machine::{Machine, not_one_of};
use crate::session::check_blocks::{check_block_memory, check_fragments};
use crate::session::{Lowering, Session, keeping_on};

/// The forms in which a kernel's code can be inspected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The elements that each task reads, writes and updates, in terms of the arguments.
    Access,
    /// The program of tasks from which code is generated.
    Ir,
    /// How each task of the program runs on the machine.
    Schedule,
    /// The output of the machine's code generator.
    Code(CodeForm),
}

/// The forms that no code generator is needed for, by name.
const OWN_FORMS: &[(&str, Form)] = &[("access", Form::Access), ("ir", Form::Ir), ("schedule", Form::Schedule)];

impl Machine {
    /// The usual ending of the name of a file with code in this form.
    pub fn file_ending(&self, form: Form) -> &'static str {
        match form {
            Form::Access => "access",
            Form::Ir => "oir",
            Form::Schedule => "schedule",
            Form::Code(form) => self.backend.file_ending(&self.target, form),
        }
    }
}

impl Session {
    /// The form with this name.
    pub fn form(&self, name: &str) -> Result<Form, Error> {
        let code = self.config().backends.forms().into_iter().map(|form| (form.name, Form::Code(form)));
        let known: Vec<(&str, Form)> = OWN_FORMS.iter().copied().chain(code).collect();
        let found = known.iter().find(|(n, _)| *n == name).map(|(_, form)| *form);
        found.ok_or_else(|| not_one_of("emit", name, known.iter().map(|(n, _)| *n)))
    }

    /// A kernel's code for a machine.
    pub fn inspect(
        &self,
        lowering: &Lowering,
        arrays_may_alias: bool,
        machine: &Machine,
        form: Form,
    ) -> Result<Vec<u8>, Error> {
        let (info, generator) = (self.info_of(machine), machine.code_generator());
        let lowering = lowering.kept_as(keeping_on(&info));
        let concurrent = self.launches_concurrently();
        let program = self.split(&lowering.lowered, (arrays_may_alias, concurrent), &info, false, |_| ())?;
        check_fragments(&program, &info, &lowering.lowered.sources)?;
        let schedule = |mut program| {
            unwrap_rows(&mut program, &lowering.lowered.split_arrays);
            let options = self.schedule_options(&lowering.lowered, (arrays_may_alias, concurrent));
            schedule_program(program, &info, options)
        };
        match form {
            Form::Access => Ok(describe_access(&program).into_bytes()),
            Form::Ir => Ok((lowering.kept() + &program.to_string()).into_bytes()),
            Form::Schedule => Ok(describe_schedule(&schedule(program)).into_bytes()),
            Form::Code(form) if generator.forms().contains(&form) => {
                let options = self.codegen_options(&machine.library);
                let scheduled = schedule(program);
                check_block_memory(&scheduled, &info)?;
                let code = generator.show(&scheduled, &options, &machine.target, form);
                code.map_err(|e| Error::Codegen(e.to_string()))
            }
            Form::Code(form) => Err(not_one_of("emit", form.name, generator.forms().iter().map(|form| form.name))),
        }
    }
}
