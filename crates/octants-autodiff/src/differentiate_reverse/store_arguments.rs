//! The arguments that describe the store to an adjoint.

use octants_ir::{BinaryOp, Buffer, Builder, Kernel, Layout, MemorySpace, Op, Param, Scalar, ValueId};

/// The scalar types of words.
pub(super) const WORDS: [Scalar; 2] = [Scalar::U32, Scalar::U64];

/// The arguments that describe a kernel's store. They follow its own: two buffers of words, then parameters of type
/// i64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreArguments {
    /// The buffer of words of 32 bits; that of 64 follows.
    pub first_buffer: u32,
    /// The first parameter. In order: the number of lanes, words from one of a lane's to the next, words from a lane's
    /// first to the next lane's (of 32 bits, of 64), words of the root (of 32 bits, of 64), and whether a lane runs
    /// neighboring iterations.
    pub first_param: u32,
}

/// Number of parameters of a store.
pub const STORE_PARAMS: u32 = 7;

impl StoreArguments {
    /// Declares the arguments of a store.
    pub(super) fn declare(kernel: &mut Kernel) -> StoreArguments {
        let args =
            StoreArguments { first_buffer: kernel.buffers.len() as u32, first_param: kernel.params.len() as u32 };
        for s in WORDS {
            kernel.buffers.push(Buffer {
                name: format!("store of {s}"),
                elem: s.into(),
                ndim: 1,
                layout: Layout::Contiguous,
                space: MemorySpace::Global,
                short_offsets: false,
                is_metadata: false,
            });
        }
        for name in ["lanes", "step", "lane32", "lane64", "root32", "root64", "neighbors"] {
            kernel.params.push(Param { name: format!("store.{name}"), ty: Scalar::I64.into() });
        }
        args
    }

    pub(super) fn param(self, b: &mut Builder, i: u32) -> ValueId {
        b.push(Op::Param(self.first_param + i), Scalar::I64.into())
    }

    pub(super) fn lanes(self, b: &mut Builder) -> ValueId {
        self.param(b, 0)
    }

    pub(super) fn step(self, b: &mut Builder) -> ValueId {
        self.param(b, 1)
    }

    /// Words before those of lane `lane`, of a class.
    pub(super) fn start(self, b: &mut Builder, lane: ValueId, class: u32) -> ValueId {
        let (stride, root) = (self.param(b, 2 + class), self.param(b, 4 + class));
        let offset = b.binary(BinaryOp::Mul, lane, stride);
        b.binary(BinaryOp::Add, root, offset)
    }

    pub(super) fn neighbors(self, b: &mut Builder) -> ValueId {
        let flag = self.param(b, 6);
        let zero = b.int(0, Scalar::I64);
        b.binary(BinaryOp::Ne, flag, zero)
    }
}
