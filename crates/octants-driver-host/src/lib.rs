//! octants-driver-host.
