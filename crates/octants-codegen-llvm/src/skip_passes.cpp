// Skips passes of LLVM's code generator that do not pay for their time on long functions.
//
// The code generator's pipeline is fixed, but each of these passes asks its context first whether it may run.
#include <llvm-c/Core.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/OptBisect.h>

namespace {

class SkipPasses : public llvm::OptPassGate {
public:
    bool isEnabled() const override {
        return true;
    }

    bool shouldRunPass(llvm::StringRef pass, llvm::StringRef) const override {
        // A processor that reorders instructions, and adds an index to a pointer within an access, needs neither.
        static constexpr llvm::StringRef skipped[] = {"Loop Strength Reduction",
                                                      "Post RA top-down list latency scheduler"};
        return !llvm::is_contained(skipped, pass);
    }
};

} // namespace

// From here on, passes over modules of this context. The gate has no state, and serves every context.
extern "C" void octants_skip_passes(LLVMContextRef context) {
    static SkipPasses gate;
    llvm::unwrap(context)->setOptPassGate(gate);
}
