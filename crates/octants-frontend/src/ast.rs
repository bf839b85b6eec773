//! The syntax tree of one function, with spans: the constructs that the language supports. Everything else is
//! [`StmtKind::Unsupported`] or [`ExprKind::Unsupported`], so that an error can name it.

use octants_diag::Span;

pub use crate::arith::{Operator, UnaryOperator};

/// A statement.
#[derive(Debug, Clone, PartialEq)]
pub struct Stmt {
    /// What it is.
    pub kind: StmtKind,
    /// Where it is.
    pub span: Span,
}

impl Stmt {
    /// The text that a message about the statement underlines; for a statement with a body, the text between keyword
    /// and colon.
    pub fn head(&self) -> Span {
        match &self.kind {
            StmtKind::If(test, ..) | StmtKind::While(test, ..) => test.span,
            StmtKind::For(target, iter, ..) => Span { end: iter.span.end, ..target.span },
            StmtKind::With(items, _) => match (items.first(), items.last()) {
                (Some((first, _)), Some((last, None))) => Span { end: last.span.end, ..first.span },
                (Some((first, _)), Some((_, Some(target)))) => Span { end: target.span.end, ..first.span },
                _ => self.span,
            },
            _ => self.span,
        }
    }
}

/// The statements of the language.
#[derive(Debug, Clone, PartialEq)]
pub enum StmtKind {
    /// An expression for its effect.
    Expr(Expr),
    /// `a = b = value`.
    Assign(Vec<Expr>, Expr),
    /// `a: T = value`; without a value it only declares.
    AnnAssign(Expr, Expr, Option<Expr>),
    /// `a op= value`.
    AugAssign(Expr, Operator, Expr),
    /// `return value`.
    Return(Option<Expr>),
    /// `if`, with `elif` nested in the second list.
    If(Expr, Vec<Stmt>, Vec<Stmt>),
    /// `for target in iter`; the last is true when an `else` clause follows.
    For(Expr, Expr, Vec<Stmt>, bool),
    /// `while test`; the last is true when an `else` clause follows.
    While(Expr, Vec<Stmt>, bool),
    /// `with items: body`; an item is an expression and its `as` target.
    With(Vec<(Expr, Option<Expr>)>, Vec<Stmt>),
    /// `assert test, message`.
    Assert(Expr, Option<Expr>),
    /// `pass`.
    Pass,
    /// `break`.
    Break,
    /// `continue`.
    Continue,
    /// A statement that the language does not have: its Python name.
    Unsupported(&'static str),
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Where it is.
    pub span: Span,
}

/// A call's arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct Arguments {
    /// Positional ones, `*args` as [`ExprKind::Starred`].
    pub positional: Vec<Expr>,
    /// Keyword ones; `None` for `**kwargs`.
    pub keywords: Vec<(Option<String>, Expr)>,
}

/// A piece of an f-string.
#[derive(Debug, Clone, PartialEq)]
pub enum FPart {
    /// Literal text.
    Text(String),
    /// `{value:spec}`.
    Value(Expr, Option<String>),
}

/// `for target in iter if conditions` of a comprehension.
#[derive(Debug, Clone, PartialEq)]
pub struct Generator {
    /// The loop variable or a tuple of them.
    pub target: Expr,
    /// What is iterated.
    pub iter: Expr,
    /// All must hold.
    pub conditions: Vec<Expr>,
}

/// The expressions of the language.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum ExprKind {
    Name(String),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(String),
    FString(Vec<FPart>),
    Tuple(Vec<Expr>),
    List(Vec<Expr>),
    /// `None` key: `**mapping`.
    Dict(Vec<(Option<Expr>, Expr)>),
    ListComp(Box<Expr>, Vec<Generator>),
    DictComp(Box<Expr>, Box<Expr>, Vec<Generator>),
    /// A set; one made by a comprehension has that as its only, starred item.
    Set(Vec<Expr>),
    Unary(UnaryOperator, Box<Expr>),
    Binary(Operator, Box<Expr>, Box<Expr>),
    /// Two or more operands.
    And(Vec<Expr>),
    /// Two or more operands.
    Or(Vec<Expr>),
    /// `a < b <= c`.
    Compare(Box<Expr>, Vec<(Comparison, Expr)>),
    IfExp(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `name := value`.
    Named(Box<Expr>, Box<Expr>),
    Call(Box<Expr>, Box<Arguments>),
    Attribute(Box<Expr>, String),
    Subscript(Box<Expr>, Box<Expr>),
    Slice(Option<Box<Expr>>, Option<Box<Expr>>, Option<Box<Expr>>),
    Starred(Box<Expr>),
    Unsupported(&'static str),
}

/// Comparison operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Is,
    IsNot,
    In,
    NotIn,
}

impl Comparison {
    /// As written.
    pub fn symbol(self) -> &'static str {
        match self {
            Comparison::Eq => "==",
            Comparison::Ne => "!=",
            Comparison::Lt => "<",
            Comparison::Le => "<=",
            Comparison::Gt => ">",
            Comparison::Ge => ">=",
            Comparison::Is => "is",
            Comparison::IsNot => "is not",
            Comparison::In => "in",
            Comparison::NotIn => "not in",
        }
    }
}
