//! octants-python.
