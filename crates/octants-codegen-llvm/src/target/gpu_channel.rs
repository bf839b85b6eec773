//! Messages from GPU code to the host: records in an `octants_artifact::DeviceChannel`, in memory that both can
//! access.

use llvm_sys::LLVMAtomicRMWBinOp as Rmw;
use octants_artifact::DeviceChannel;

use super::Target;
use super::gpu::{CHANNEL, FAIL, FAILED, GLOBAL, Gpu, KERNEL, LAUNCH, TASK};
use crate::emit::{Emitter, IntCmp, V};

const NEXT: i64 = 0;
const CAPACITY: i64 = 8;
const LOST: i64 = 12;
const FAILURE: i64 = 16;
const RECORDS: i64 = DeviceChannel::BYTES as i64;

impl Gpu {
    /// A module's own function that writes a record: to the channel's records, or as its first failure.
    fn record_function(&self, e: &Emitter, name: &'static str) -> V {
        let known = e.declare(name, e.void, &mut [e.pointer_in(GLOBAL), e.i64, e.ptr, e.i32, e.i32]);
        if crate::emit::llvm!(llvm_sys::core::LLVMCountBasicBlocks(known)) > 0 {
            return known;
        }
        e.set_internal(known);
        e.function_attribute(known, "noinline", 0);
        e.function_attribute(known, "cold", 0);
        self.finish_function(e, known);
        let here = e.block();
        let (channel, header, values, count) =
            (e.param(known, 0), e.param(known, 1), e.param(known, 2), e.param(known, 3));
        let block = |name| e.add_block(known, name);
        let (entry, room, copy, body, publish, full, done) = (
            block(c"entry"),
            block(c"room"),
            block(c"copy"),
            block(c"body"),
            block(c"publish"),
            block(c"full"),
            block(c"done"),
        );
        e.position(entry);
        let (start, most) = if name == FAIL {
            let pair = e.cmpxchg_with_host(e.byte_offset(channel, FAILED), e.i32c(0), e.param(known, 4));
            e.cond_br(e.extract_value(pair, 1), room, done);
            e.position(room);
            (e.byte_offset(channel, FAILURE), e.i32c(DeviceChannel::FAILURE_WORDS as i64 - 1))
        } else {
            let words = e.add(count, e.i32c(1));
            let at = e.atomic_rmw_with_host(Rmw::LLVMAtomicRMWBinOpAdd, e.byte_offset(channel, NEXT), words);
            let capacity = e.load(e.i32, e.byte_offset(channel, CAPACITY), 4);
            // In 64 bits, because the count may far exceed the capacity.
            let end = e.add(e.zext(at, e.i64), e.zext(words, e.i64));
            e.cond_br(e.icmp(IntCmp::LLVMIntULE, end, e.zext(capacity, e.i64)), room, full);
            e.position(full);
            e.atomic_rmw_with_host(Rmw::LLVMAtomicRMWBinOpAdd, e.byte_offset(channel, LOST), e.i32c(1));
            e.br(done);
            e.position(room);
            (e.gep(e.i64, e.byte_offset(channel, RECORDS), e.zext(at, e.i64)), count)
        };
        let fits = e.icmp(IntCmp::LLVMIntULT, count, most);
        let last = e.select(fits, count, most);
        e.br(copy);
        e.position(copy);
        let i = e.phi(e.i32);
        e.add_incoming(i, e.i32c(0), room);
        e.cond_br(e.icmp(IntCmp::LLVMIntULT, i, last), body, publish);
        e.position(body);
        let next = e.add(i, e.i32c(1));
        let value = e.load(e.i64, e.gep(e.i64, values, e.zext(i, e.i64)), 8);
        e.store(e.gep(e.i64, start, e.zext(next, e.i64)), value, 8);
        e.add_incoming(i, next, body);
        e.br(copy);
        e.position(publish);
        // The host may read while other work runs, so the header is written last: a record with a header is complete.
        e.fence();
        e.store(start, header, 8);
        e.br(done);
        if name == FAIL {
            e.position(full);
            e.br(done);
        }
        e.position(done);
        e.ret_void();
        e.position(here);
        known
    }

    pub(super) fn record(&self, e: &Emitter, name: &'static str, context: V, site: u32, values: V, count: usize) {
        let f = self.record_function(e, name);
        let channel = self.field(e, e.pointer_in(GLOBAL), context, CHANNEL);
        let kernel = self.field(e, e.i64, context, KERNEL);
        let marked = e.shl(e.add(kernel, e.i64c(1)), e.i64c(32));
        let header = e.or(marked, e.i64c(i64::from(site)));
        e.call(f, &[channel, header, values, e.i32c(count as i64), self.task_in_launch(e, context)]);
    }

    /// A nonzero number that distinguishes a task of a launch from those of concurrent launches.
    pub(super) fn task_in_launch(&self, e: &Emitter, context: V) -> V {
        let (launch, task) = (self.field(e, e.i64, context, LAUNCH), self.field(e, e.i64, context, TASK));
        let number = e.add(e.mul(launch, e.i64c(0x9E37_79B1)), task);
        e.or(e.trunc(number, e.i32), e.i32c(1 << 31))
    }
}
