//! octants-frontend.
