//! octants-runtime.
