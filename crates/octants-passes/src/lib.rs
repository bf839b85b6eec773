//! octants-passes.
