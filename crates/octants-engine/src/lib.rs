//! octants-engine.
