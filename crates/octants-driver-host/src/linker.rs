//! Links object files into the process with LLVM's ORC and JITLink.
//!
//! One [`Linker`] serves a program. The objects of each kernel have their own symbol table, so kernels may define the
//! same names. The table is reused after the kernel is unloaded (LLVM's C interface can clear a table but not remove
//! it). Undefined symbols are looked up in the process, libm, libmvec and libgcc.

use std::ffi::{CStr, CString, c_void};
use std::sync::{Mutex, Once, PoisonError, mpsc};

use llvm_sys::core::LLVMCreateMemoryBufferWithMemoryRangeCopy;
use llvm_sys::error::{LLVMDisposeErrorMessage, LLVMErrorRef, LLVMGetErrorMessage};
use llvm_sys::orc2::lljit::{
    LLVMOrcCreateLLJIT, LLVMOrcCreateLLJITBuilder, LLVMOrcDisposeLLJIT, LLVMOrcLLJITAddObjectFile,
    LLVMOrcLLJITGetExecutionSession, LLVMOrcLLJITGetGlobalPrefix, LLVMOrcLLJITMangleAndIntern, LLVMOrcLLJITRef,
};
use llvm_sys::orc2::{
    LLVMOrcCJITDylibSearchOrderElement, LLVMOrcCLookupSetElement, LLVMOrcCSymbolMapPairs,
    LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess, LLVMOrcExecutionSessionCreateBareJITDylib,
    LLVMOrcExecutionSessionLookup, LLVMOrcExecutionSessionRef, LLVMOrcExecutionSessionSetErrorReporter,
    LLVMOrcJITDylibAddGenerator, LLVMOrcJITDylibClear, LLVMOrcJITDylibLookupFlags, LLVMOrcJITDylibRef,
    LLVMOrcLookupKind, LLVMOrcReleaseSymbolStringPoolEntry, LLVMOrcSymbolLookupFlags,
};
use llvm_sys::target::{LLVM_InitializeNativeAsmPrinter, LLVM_InitializeNativeTarget};

/// Addresses of an object's symbols, in the order requested, or the linker's error.
type Found = Result<Vec<u64>, String>;

/// Links objects into the process.
pub struct Linker {
    jit: LLVMOrcLLJITRef,
    session: LLVMOrcExecutionSessionRef,
    tables: Mutex<Tables>,
    /// The errors that the session reported: the causes of failures.
    causes: Box<Mutex<Vec<String>>>,
}

#[derive(Default)]
struct Tables {
    made: usize,
    free: Vec<LLVMOrcJITDylibRef>,
}

/// A linked object. Give it back to [`Linker::unload`].
#[derive(Debug)]
pub struct Linked {
    table: LLVMOrcJITDylibRef,
    /// In the order requested.
    pub addresses: Vec<u64>,
}

// SAFETY: ORC's session and LLJIT may be used from several threads at once; the tables have their own lock.
unsafe impl Send for Linker {}
// SAFETY: as above.
unsafe impl Sync for Linker {}
// SAFETY: the table is only passed back to the linker.
unsafe impl Send for Linked {}
// SAFETY: as above.
unsafe impl Sync for Linked {}

impl Linker {
    /// Starts a linker.
    pub fn new() -> Result<Linker, String> {
        prepare_process();
        let mut jit = std::ptr::null_mut();
        // SAFETY: a fresh builder, which the call takes over; the session belongs to the jit.
        unsafe {
            check(LLVMOrcCreateLLJIT(&mut jit, LLVMOrcCreateLLJITBuilder()))?;
            let session = LLVMOrcLLJITGetExecutionSession(jit);
            let causes = Box::<Mutex<Vec<String>>>::default();
            // By default the session prints its reports. It ends before the box does.
            let context = std::ptr::from_ref(&*causes).cast_mut().cast();
            LLVMOrcExecutionSessionSetErrorReporter(session, keep_cause, context);
            Ok(Linker { jit, session, tables: Mutex::default(), causes })
        }
    }

    /// Links object files, which share a table, and finds the addresses of `symbols` in them.
    pub fn link(&self, objects: &[Vec<u8>], symbols: &[&str]) -> Result<Linked, String> {
        let table = self.table()?;
        match self.link_into(table, objects, symbols) {
            Ok(addresses) => Ok(Linked { table, addresses }),
            Err(mut message) => {
                for cause in self.causes.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
                    message.push_str("; ");
                    message.push_str(&cause);
                }
                self.unload(Linked { table, addresses: Vec::new() });
                Err(message)
            }
        }
    }

    /// Unloads an object; none of its code runs any more.
    pub fn unload(&self, linked: Linked) {
        // SAFETY: the table belongs to this linker's session.
        let cleared = unsafe { check(LLVMOrcJITDylibClear(linked.table)) };
        if cleared.is_ok() {
            self.lock().free.push(linked.table);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn table(&self) -> Result<LLVMOrcJITDylibRef, String> {
        let name = {
            let mut tables = self.lock();
            if let Some(table) = tables.free.pop() {
                return Ok(table);
            }
            tables.made += 1;
            format!("object{}", tables.made)
        };
        let name = CString::new(name).map_err(|e| e.to_string())?;
        // SAFETY: the session is alive, names are unique; the generator is handed over to the table.
        unsafe {
            let table = LLVMOrcExecutionSessionCreateBareJITDylib(self.session, name.as_ptr());
            let mut generator = std::ptr::null_mut();
            check(LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(
                &mut generator,
                LLVMOrcLLJITGetGlobalPrefix(self.jit),
                None,
                std::ptr::null_mut(),
            ))?;
            LLVMOrcJITDylibAddGenerator(table, generator);
            Ok(table)
        }
    }

    fn link_into(&self, table: LLVMOrcJITDylibRef, objects: &[Vec<u8>], symbols: &[&str]) -> Found {
        let names: Vec<CString> =
            symbols.iter().map(|s| CString::new(*s).map_err(|e| e.to_string())).collect::<Result<_, _>>()?;
        // SAFETY: the buffers are copies that the jit takes over; interned names are retained until the lookup is over,
        // which takes over one reference of each.
        unsafe {
            for object in objects {
                let (start, length) = (object.as_ptr().cast(), object.len());
                let buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(start, length, c"kernel".as_ptr());
                check(LLVMOrcLLJITAddObjectFile(self.jit, table, buffer))?;
            }
            // The answer is a map, so each symbol is looked up once.
            let mut asked: Vec<(llvm_sys::orc2::LLVMOrcSymbolStringPoolEntryRef, usize)> = Vec::new();
            let mut set: Vec<LLVMOrcCLookupSetElement> = Vec::new();
            let mut slots = Vec::with_capacity(names.len());
            for name in &names {
                let entry = LLVMOrcLLJITMangleAndIntern(self.jit, name.as_ptr());
                if let Some(&(_, slot)) = asked.iter().find(|(e, _)| *e == entry) {
                    LLVMOrcReleaseSymbolStringPoolEntry(entry);
                    slots.push(slot);
                    continue;
                }
                slots.push(asked.len());
                asked.push((entry, asked.len()));
                set.push(LLVMOrcCLookupSetElement {
                    Name: entry,
                    LookupFlags: LLVMOrcSymbolLookupFlags::LLVMOrcSymbolLookupFlagsRequiredSymbol,
                });
            }
            let mut order = LLVMOrcCJITDylibSearchOrderElement {
                JD: table,
                JDLookupFlags: LLVMOrcJITDylibLookupFlags::LLVMOrcJITDylibLookupFlagsMatchAllSymbols,
            };
            let (send, receive) = mpsc::channel::<Result<Vec<(usize, u64)>, String>>();
            let send = Box::into_raw(Box::new(send));
            LLVMOrcExecutionSessionLookup(
                self.session,
                LLVMOrcLookupKind::LLVMOrcLookupKindStatic,
                &mut order,
                1,
                set.as_mut_ptr(),
                set.len(),
                take_answer,
                send.cast(),
            );
            // The lookup may end on a thread of the session's.
            let answer = receive.recv().map_err(|_| "the linker gave no answer".to_string())??;
            let address = |entry: usize| answer.iter().find(|(e, _)| *e == entry).map(|&(_, a)| a);
            slots
                .iter()
                .zip(symbols)
                .map(|(&slot, name)| address(asked[slot].0 as usize).ok_or_else(|| format!("no symbol `{name}`")))
                .collect()
        }
    }
}

impl Drop for Linker {
    fn drop(&mut self) {
        // SAFETY: made by `new`; every holder of loaded objects held the linker and is gone.
        let _ = unsafe { check(LLVMOrcDisposeLLJIT(self.jit)) };
    }
}

extern "C" fn take_answer(error: LLVMErrorRef, pairs: LLVMOrcCSymbolMapPairs, count: usize, context: *mut c_void) {
    // SAFETY: `context` is the boxed sender made for this lookup, and ORC answers once; `pairs` has `count` entries.
    unsafe {
        let send = Box::from_raw(context.cast::<mpsc::Sender<Result<Vec<(usize, u64)>, String>>>());
        let answer = check(error).map(|()| {
            if count == 0 {
                return Vec::new();
            }
            let pairs = std::slice::from_raw_parts(pairs, count);
            pairs.iter().map(|p| (p.Name as usize, p.Sym.Address)).collect()
        });
        // The receiver waits for as long as there is a sender.
        let _ = send.send(answer);
    }
}

extern "C" fn keep_cause(context: *mut c_void, error: LLVMErrorRef) {
    // SAFETY: the reporter owns the error; `context` is the linker's `causes`.
    unsafe {
        if let Err(cause) = check(error) {
            let causes = &*context.cast::<Mutex<Vec<String>>>();
            causes.lock().unwrap_or_else(PoisonError::into_inner).push(cause);
        }
    }
}

/// Turns LLVM's error into ours.
///
/// # Safety
/// `error` is an error that the caller owns, or null.
unsafe fn check(error: LLVMErrorRef) -> Result<(), String> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: `LLVMGetErrorMessage` consumes the error and makes a string that is given back.
    unsafe {
        let message = LLVMGetErrorMessage(error);
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        LLVMDisposeErrorMessage(message);
        Err(text)
    }
}

/// Prepares LLVM's native target and opens the libraries that compiled code calls, so that their symbols are the
/// process's.
fn prepare_process() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: plain initializers, once; `dlopen` of system libraries whose constructors do nothing.
        unsafe {
            LLVM_InitializeNativeTarget();
            LLVM_InitializeNativeAsmPrinter();
            // libgcc has the code generator's runtime functions: integer powers, f16 conversions.
            for library in [c"libm.so.6", c"libmvec.so.1", c"libgcc_s.so.1"] {
                // If a library is missing, loading code that needs it reports the missing symbol.
                libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL);
            }
        }
    });
}
