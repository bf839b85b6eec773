// Shortens the minimum and the maximum of two floats on X86.
//
// X86's `min` returns its second operand if either is NaN; a minimum of the language is the operand that is not NaN.
// LLVM 22 expands `llvm.minimumnum` to the instruction, a test of its result, and a choice that depends on the test:
// the three wait for one another. Only a NaN in the second operand has to be corrected, and that operand may be tested
// while the minimum is computed. So the operand that is known first becomes the second.
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>

#include "check_extrema_early.h"

namespace {

// Whether a value is known before another one, both operands of an instruction of the block. A load waits for less than
// a computed value.
bool is_earlier(const llvm::Value *one, const llvm::Value *other, const llvm::BasicBlock *block) {
    const auto *first = llvm::dyn_cast<llvm::Instruction>(one);
    const auto *second = llvm::dyn_cast<llvm::Instruction>(other);
    const bool one_is_here = first && first->getParent() == block;
    const bool other_is_here = second && second->getParent() == block;
    if (!one_is_here || !other_is_here)
        return !one_is_here;
    const bool one_is_load = llvm::isa<llvm::LoadInst>(first), other_is_load = llvm::isa<llvm::LoadInst>(second);
    return one_is_load == other_is_load ? first->comesBefore(second) : one_is_load;
}

bool is_candidate(const llvm::IntrinsicInst &call) {
    const llvm::Intrinsic::ID id = call.getIntrinsicID();
    if (id != llvm::Intrinsic::minimumnum && id != llvm::Intrinsic::maximumnum)
        return false;
    const llvm::Type *type = call.getType()->getScalarType();
    if (!(type->isFloatTy() || type->isDoubleTy()) || !call.hasNoSignedZeros())
        return false;
    // Otherwise one instruction is enough.
    const llvm::SimplifyQuery query(call.getDataLayout(), &call);
    return !llvm::isKnownNeverNaN(call.getArgOperand(0), query) && !llvm::isKnownNeverNaN(call.getArgOperand(1), query);
}

void expand(llvm::IntrinsicInst &call) {
    llvm::Value *late = call.getArgOperand(0), *early = call.getArgOperand(1);
    if (is_earlier(late, early, call.getParent()))
        std::swap(late, early);
    llvm::IRBuilder<> builder(&call);
    const bool is_minimum = call.getIntrinsicID() == llvm::Intrinsic::minimumnum;
    llvm::Value *is_late = is_minimum ? builder.CreateFCmpOLT(late, early) : builder.CreateFCmpOGT(late, early);
    llvm::Value *extremum = builder.CreateSelect(is_late, late, early);
    llvm::Value *result = builder.CreateSelect(builder.CreateFCmpUNO(early, early), late, extremum);
    result->takeName(&call);
    call.replaceAllUsesWith(result);
    call.eraseFromParent();
}

} // namespace

llvm::PreservedAnalyses octants::CheckExtremaEarly::run(llvm::Function &function, llvm::FunctionAnalysisManager &) {
    if (!function.getParent()->getTargetTriple().isX86())
        return llvm::PreservedAnalyses::all();
    llvm::SmallVector<llvm::IntrinsicInst *> found;
    for (llvm::BasicBlock &block : function)
        for (llvm::Instruction &instruction : block)
            if (auto *call = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction); call && is_candidate(*call))
                found.push_back(call);
    for (llvm::IntrinsicInst *call : found)
        expand(*call);
    if (found.empty())
        return llvm::PreservedAnalyses::all();
    llvm::PreservedAnalyses preserved;
    preserved.preserveSet<llvm::CFGAnalyses>();
    return preserved;
}
