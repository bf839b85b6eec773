//! octants-codegen-llvm.
