//! Parses the text of one function to a syntax tree, with ruff's parser. Lines and columns stay those of the user: an
//! indented method is parsed after a line that opens a block, and spans are shifted back.

use octants_diag::{Code, Diagnostic, Result, SourceFile, Span};
use ruff_python_ast as r;
use ruff_text_size::{Ranged, TextRange};

use crate::ast::*;

const BLOCK: &str = "if 1:\n";

/// Parses the function that `file` holds; `index` is the file's position in the compilation's sources.
pub fn parse_function(file: &SourceFile, index: u32) -> Result<Vec<Stmt>> {
    let indented = file.text.starts_with([' ', '\t']);
    let text = if indented { format!("{BLOCK}{}", file.text) } else { file.text.clone() };
    let shift = if indented { BLOCK.len() as u32 } else { 0 };
    let cx = Convert { file: index, shift, text: &text };
    let module = ruff_python_parser::parse_module(&text)
        .map_err(|e| Diagnostic::new(Code::Syntax, cx.span(e.location), format!("invalid Python: {}", e.error)))?
        .into_syntax();
    let mut body = module.body;
    if indented && let Some(r::Stmt::If(block)) = body.first_mut() {
        body = std::mem::take(&mut block.body).into_iter().collect();
    }
    match body.into_iter().next() {
        Some(r::Stmt::FunctionDef(def)) if def.is_async => {
            Err(Diagnostic::new(Code::Syntax, cx.span(def.range()), "Unsupported node \"AsyncFunctionDef\"")
                .with_hint("write `def`: launches are asynchronous anyway, and `qd.sync()` waits for them"))
        }
        Some(r::Stmt::FunctionDef(def)) => Ok(cx.stmts(&def.body)),
        Some(other) => Err(Diagnostic::new(
            Code::Syntax,
            cx.span(other.range()),
            "a kernel or function must be written with `def`",
        )
        .with_hint("lambdas and generated functions cannot be compiled")),
        None => Err(Diagnostic::new(
            Code::Syntax,
            Span { file: index, ..Span::default() },
            "expected a function definition",
        )),
    }
}

struct Convert<'t> {
    file: u32,
    shift: u32,
    text: &'t str,
}

impl Convert<'_> {
    fn span(&self, range: TextRange) -> Span {
        Span {
            file: self.file,
            start: u32::from(range.start()).saturating_sub(self.shift),
            end: u32::from(range.end()).saturating_sub(self.shift),
            call: 0,
        }
    }

    fn stmts(&self, stmts: &[r::Stmt]) -> Vec<Stmt> {
        stmts.iter().map(|s| self.stmt(s)).collect()
    }

    fn stmt(&self, stmt: &r::Stmt) -> Stmt {
        let kind = match stmt {
            r::Stmt::Expr(s) => StmtKind::Expr(self.expr(&s.value)),
            r::Stmt::Assign(s) => {
                StmtKind::Assign(s.targets.iter().map(|t| self.expr(t)).collect(), self.expr(&s.value))
            }
            r::Stmt::AnnAssign(s) => StmtKind::AnnAssign(
                self.expr(&s.target),
                self.expr(&s.annotation),
                s.value.as_ref().map(|v| self.expr(v)),
            ),
            r::Stmt::AugAssign(s) => StmtKind::AugAssign(self.expr(&s.target), operator(s.op), self.expr(&s.value)),
            r::Stmt::Return(s) => StmtKind::Return(s.value.as_ref().map(|v| self.expr(v))),
            r::Stmt::If(s) => self.if_chain(&s.test, &s.body, &s.elif_else_clauses),
            r::Stmt::For(s) => {
                StmtKind::For(self.expr(&s.target), self.expr(&s.iter), self.stmts(&s.body), !s.orelse.is_empty())
            }
            r::Stmt::While(s) => StmtKind::While(self.expr(&s.test), self.stmts(&s.body), !s.orelse.is_empty()),
            r::Stmt::With(s) => StmtKind::With(
                s.items
                    .iter()
                    .map(|i| (self.expr(&i.context_expr), i.optional_vars.as_ref().map(|v| self.expr(v))))
                    .collect(),
                self.stmts(&s.body),
            ),
            r::Stmt::Assert(s) => StmtKind::Assert(self.expr(&s.test), s.msg.as_ref().map(|m| self.expr(m))),
            r::Stmt::Pass(_) => StmtKind::Pass,
            r::Stmt::Break(_) => StmtKind::Break,
            r::Stmt::Continue(_) => StmtKind::Continue,
            r::Stmt::FunctionDef(_) => StmtKind::Unsupported("FunctionDef"),
            r::Stmt::ClassDef(_) => StmtKind::Unsupported("ClassDef"),
            r::Stmt::Delete(_) => StmtKind::Unsupported("Delete"),
            r::Stmt::TypeAlias(_) => StmtKind::Unsupported("TypeAlias"),
            r::Stmt::Match(_) => StmtKind::Unsupported("Match"),
            r::Stmt::Raise(_) => StmtKind::Unsupported("Raise"),
            r::Stmt::Try(_) => StmtKind::Unsupported("Try"),
            r::Stmt::Import(_) => StmtKind::Unsupported("Import"),
            r::Stmt::ImportFrom(_) => StmtKind::Unsupported("ImportFrom"),
            r::Stmt::Global(_) => StmtKind::Unsupported("Global"),
            r::Stmt::Nonlocal(_) => StmtKind::Unsupported("Nonlocal"),
            r::Stmt::IpyEscapeCommand(_) => StmtKind::Unsupported("IpyEscapeCommand"),
        };
        Stmt { kind, span: self.span(stmt.range()) }
    }

    fn if_chain(&self, test: &r::Expr, body: &[r::Stmt], rest: &[r::ElifElseClause]) -> StmtKind {
        let orelse = match rest.split_first() {
            None => Vec::new(),
            Some((clause, more)) => match &clause.test {
                None => self.stmts(&clause.body),
                Some(test) => {
                    vec![Stmt { kind: self.if_chain(test, &clause.body, more), span: self.span(clause.range) }]
                }
            },
        };
        StmtKind::If(self.expr(test), self.stmts(body), orelse)
    }

    fn boxed(&self, e: &r::Expr) -> Box<Expr> {
        Box::new(self.expr(e))
    }

    fn exprs<'a>(&self, es: impl IntoIterator<Item = &'a r::Expr>) -> Vec<Expr> {
        es.into_iter().map(|e| self.expr(e)).collect()
    }

    fn generators(&self, gens: &[r::Comprehension]) -> Vec<Generator> {
        gens.iter()
            .map(|g| Generator {
                target: self.expr(&g.target),
                iter: self.expr(&g.iter),
                conditions: self.exprs(&g.ifs),
            })
            .collect()
    }

    fn expr(&self, e: &r::Expr) -> Expr {
        let kind = match e {
            r::Expr::Name(n) => ExprKind::Name(n.id.to_string()),
            r::Expr::NoneLiteral(_) => ExprKind::None,
            r::Expr::BooleanLiteral(b) => ExprKind::Bool(b.value),
            r::Expr::NumberLiteral(n) => match &n.value {
                r::Number::Int(i) => match i.to_string().replace('_', "").parse::<i128>() {
                    Ok(v) => ExprKind::Int(v),
                    Err(_) => big_literal(&i.to_string()).map_or(ExprKind::Unsupported("BigInt"), ExprKind::Int),
                },
                r::Number::Float(f) => ExprKind::Float(*f),
                r::Number::Complex { .. } => ExprKind::Unsupported("Complex"),
            },
            r::Expr::StringLiteral(s) => ExprKind::Str(s.value.to_str().to_owned()),
            r::Expr::FString(f) => ExprKind::FString(self.fstring(f)),
            r::Expr::Tuple(t) => ExprKind::Tuple(self.exprs(&t.elts)),
            r::Expr::List(l) => ExprKind::List(self.exprs(&l.elts)),
            r::Expr::Dict(d) => ExprKind::Dict(
                d.items.iter().map(|i| (i.key.as_ref().map(|k| self.expr(k)), self.expr(&i.value))).collect(),
            ),
            r::Expr::ListComp(c) => ExprKind::ListComp(self.boxed(&c.elt), self.generators(&c.generators)),
            r::Expr::Generator(c) => ExprKind::ListComp(self.boxed(&c.elt), self.generators(&c.generators)),
            r::Expr::DictComp(c) => match &c.key {
                Some(key) => ExprKind::DictComp(self.boxed(key), self.boxed(&c.value), self.generators(&c.generators)),
                None => ExprKind::Unsupported("DictComp"),
            },
            r::Expr::UnaryOp(u) => ExprKind::Unary(
                match u.op {
                    r::UnaryOp::Invert => UnaryOperator::Invert,
                    r::UnaryOp::Not => UnaryOperator::Not,
                    r::UnaryOp::UAdd => UnaryOperator::Pos,
                    r::UnaryOp::USub => UnaryOperator::Neg,
                },
                self.boxed(&u.operand),
            ),
            r::Expr::BinOp(b) => ExprKind::Binary(operator(b.op), self.boxed(&b.left), self.boxed(&b.right)),
            r::Expr::BoolOp(b) => {
                let values = self.exprs(&b.values);
                match b.op {
                    r::BoolOp::And => ExprKind::And(values),
                    r::BoolOp::Or => ExprKind::Or(values),
                }
            }
            r::Expr::Compare(c) => ExprKind::Compare(
                self.boxed(&c.left),
                c.ops.iter().zip(c.comparators.iter()).map(|(op, e)| (comparison(*op), self.expr(e))).collect(),
            ),
            r::Expr::If(i) => ExprKind::IfExp(self.boxed(&i.test), self.boxed(&i.body), self.boxed(&i.orelse)),
            r::Expr::Named(n) => ExprKind::Named(self.boxed(&n.target), self.boxed(&n.value)),
            r::Expr::Call(c) => ExprKind::Call(
                self.boxed(&c.func),
                Box::new(Arguments {
                    positional: self.exprs(&c.arguments.args),
                    keywords: c
                        .arguments
                        .keywords
                        .iter()
                        .map(|k| (k.arg.as_ref().map(|a| a.id.to_string()), self.expr(&k.value)))
                        .collect(),
                }),
            ),
            r::Expr::Attribute(a) => ExprKind::Attribute(self.boxed(&a.value), a.attr.id.to_string()),
            r::Expr::Subscript(s) => ExprKind::Subscript(self.boxed(&s.value), self.boxed(&s.slice)),
            r::Expr::Slice(s) => {
                let part = |p: &Option<Box<r::Expr>>| p.as_ref().map(|e| self.boxed(e));
                ExprKind::Slice(part(&s.lower), part(&s.upper), part(&s.step))
            }
            r::Expr::Starred(s) => ExprKind::Starred(self.boxed(&s.value)),
            r::Expr::Lambda(_) => ExprKind::Unsupported("Lambda"),
            r::Expr::Set(s) => ExprKind::Set(self.exprs(&s.elts)),
            r::Expr::SetComp(c) => {
                let items = ExprKind::ListComp(self.boxed(&c.elt), self.generators(&c.generators));
                let span = self.span(c.range);
                let items = Box::new(Expr { kind: items, span });
                ExprKind::Set(vec![Expr { kind: ExprKind::Starred(items), span }])
            }
            r::Expr::Await(_) => ExprKind::Unsupported("Await"),
            r::Expr::Yield(_) => ExprKind::Unsupported("Yield"),
            r::Expr::YieldFrom(_) => ExprKind::Unsupported("YieldFrom"),
            r::Expr::TString(_) => ExprKind::Unsupported("TemplateStr"),
            r::Expr::BytesLiteral(_) => ExprKind::Unsupported("Bytes"),
            r::Expr::EllipsisLiteral(_) => ExprKind::Unsupported("Ellipsis"),
            r::Expr::IpyEscapeCommand(_) => ExprKind::Unsupported("IpyEscapeCommand"),
        };
        Expr { kind, span: self.span(e.range()) }
    }

    fn fstring(&self, f: &r::ExprFString) -> Vec<FPart> {
        let mut parts = Vec::new();
        let text = |parts: &mut Vec<FPart>, s: &str| match parts.last_mut() {
            Some(FPart::Text(t)) => t.push_str(s),
            _ => parts.push(FPart::Text(s.to_owned())),
        };
        for part in f.value.iter() {
            match part {
                r::FStringPart::Literal(l) => text(&mut parts, &l.value),
                r::FStringPart::FString(f) => {
                    for element in &f.elements {
                        match element {
                            r::InterpolatedStringElement::Literal(l) => text(&mut parts, &l.value),
                            r::InterpolatedStringElement::Interpolation(i) => {
                                if let Some(debug) = &i.debug_text {
                                    let range = i.expression.range().to_std_range();
                                    let source = self.text.get(range).unwrap_or_default();
                                    text(&mut parts, &format!("{}{source}{}", debug.leading(), debug.trailing()));
                                }
                                let nested = i.format_spec.iter().flat_map(|s| s.elements.interpolations());
                                parts.extend(nested.map(|n| {
                                    let kind = ExprKind::Unsupported("FormattedValue");
                                    FPart::Value(Expr { kind, span: self.span(n.range()) }, None)
                                }));
                                let spec = i.format_spec.as_ref().map(|s| {
                                    s.elements
                                        .iter()
                                        .filter_map(|e| match e {
                                            r::InterpolatedStringElement::Literal(l) => Some(l.value.to_string()),
                                            r::InterpolatedStringElement::Interpolation(_) => None,
                                        })
                                        .collect::<String>()
                                });
                                parts.push(FPart::Value(self.expr(&i.expression), spec.filter(|s| !s.is_empty())));
                            }
                        }
                    }
                }
            }
        }
        parts
    }
}

/// A literal past u64: in base 10, 16, 8 or 2, when it fits i128.
fn big_literal(text: &str) -> Option<i128> {
    let text = text.replace('_', "").to_ascii_lowercase();
    let (digits, radix) = match text.get(..2) {
        Some("0x") => (&text[2..], 16),
        Some("0o") => (&text[2..], 8),
        Some("0b") => (&text[2..], 2),
        _ => (text.as_str(), 10),
    };
    i128::from_str_radix(digits, radix).ok()
}

fn operator(op: r::Operator) -> Operator {
    match op {
        r::Operator::Add => Operator::Add,
        r::Operator::Sub => Operator::Sub,
        r::Operator::Mult => Operator::Mul,
        r::Operator::MatMult => Operator::MatMul,
        r::Operator::Div => Operator::Div,
        r::Operator::FloorDiv => Operator::FloorDiv,
        r::Operator::Mod => Operator::Mod,
        r::Operator::Pow => Operator::Pow,
        r::Operator::LShift => Operator::Shl,
        r::Operator::RShift => Operator::Shr,
        r::Operator::BitOr => Operator::BitOr,
        r::Operator::BitXor => Operator::BitXor,
        r::Operator::BitAnd => Operator::BitAnd,
    }
}

fn comparison(op: r::CmpOp) -> Comparison {
    match op {
        r::CmpOp::Eq => Comparison::Eq,
        r::CmpOp::NotEq => Comparison::Ne,
        r::CmpOp::Lt => Comparison::Lt,
        r::CmpOp::LtE => Comparison::Le,
        r::CmpOp::Gt => Comparison::Gt,
        r::CmpOp::GtE => Comparison::Ge,
        r::CmpOp::Is => Comparison::Is,
        r::CmpOp::IsNot => Comparison::IsNot,
        r::CmpOp::In => Comparison::In,
        r::CmpOp::NotIn => Comparison::NotIn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_indented_method_keeps_its_column_numbers() {
        let file = SourceFile {
            path: "a.py".into(),
            text: "    @qd.kernel\n    def step(self):\n        self.x[0] += 1\n".into(),
            first_line: 5,
            is_library: false,
        };
        let body = parse_function(&file, 0).unwrap();
        assert_eq!(body.len(), 1);
        let span = body[0].span;
        assert_eq!(&file.text[span.start as usize..span.end as usize], "self.x[0] += 1");
    }
}
