//! The table of operations agrees with itself and with the parser.

use std::collections::HashSet;

use octants_ir::{AtomicOp, BinaryOp, Kernel, Op, ReduceOp, UnaryOp};

/// Begins an operation in the IR's text.
fn is_known(word: &str) -> bool {
    let text = format!("kernel k -> unit {{\n  body {{\n    {word}\n  }}\n}}");
    text.parse::<Kernel>().map_or_else(|e| !e.to_string().contains("is not an operation"), |_| true)
}

#[test]
fn the_parser_knows_every_operation() {
    let unary = UnaryOp::ALL.iter().map(|op| op.name());
    let binary = BinaryOp::ALL.iter().map(|op| op.name());
    let mut seen = HashSet::new();
    for word in Op::WORDS.iter().copied().chain(unary).chain(binary) {
        assert!(is_known(word), "`{word}`");
        assert!(seen.insert(word), "`{word}` is the name of two operations");
    }
    assert!(!is_known("frobnicate"));
}

#[test]
fn names_map_back_to_their_operations() {
    assert!(UnaryOp::ALL.iter().all(|op| UnaryOp::from_name(op.name()) == Some(*op)));
    assert!(BinaryOp::ALL.iter().all(|op| BinaryOp::from_name(op.name()) == Some(*op)));
    assert!(AtomicOp::ALL.iter().all(|op| AtomicOp::from_name(op.name()) == Some(*op)));
    assert!(ReduceOp::ALL.iter().all(|op| ReduceOp::from_name(op.name()) == Some(*op)));
    assert_eq!(UnaryOp::from_function("isnan"), Some(UnaryOp::IsNan));
    assert_eq!(BinaryOp::from_function("bit_sar"), Some(BinaryOp::Shr));
    assert_eq!(AtomicOp::from_function("atomic_xor"), Some(AtomicOp::Xor));
}

#[test]
fn an_atomic_update_and_its_operation_agree() {
    for op in AtomicOp::ALL {
        match op.binary() {
            Some(binary) => {
                assert_eq!(AtomicOp::from_binary(binary), Some(*op));
                assert_eq!(op.domain(), binary.domain(), "{op:?}");
            }
            None => assert_eq!(*op, AtomicOp::Exchange),
        }
    }
    assert_eq!(AtomicOp::from_binary(BinaryOp::Div), None);
}
