// Tells LLVM's loop vectorizer the largest trip count of a loop whose trip count is one of two constants.
//
// A loop over the rows of a block, `for k in range(4 if is_block else 1)`, needs vectors of at most four elements. But
// LLVM 22 knows only which bits of a `select` of two constants may be set: for 4 and 1 the range is [0, 5], and as the
// trip count may be 0, the range of the count minus one is not bounded at all. The vectorizer then takes the widest
// vectors, half of whose elements are masked out.
//
// The value is clamped to the range that it has anyway. Instruction combining removes that after the vectorizer.
#include <llvm/ADT/SetVector.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Intrinsics.h>

#include "bound_trip_counts.h"

namespace {

// Most values that are looked through on the way from a trip count to the constants.
constexpr unsigned most_values = 16;

// A choice between two constants, neither of which is negative.
llvm::SelectInst *as_choice(llvm::Value *value) {
    auto *select = llvm::dyn_cast<llvm::SelectInst>(value);
    if (!select)
        return nullptr;
    auto *one = llvm::dyn_cast<llvm::ConstantInt>(select->getTrueValue());
    auto *other = llvm::dyn_cast<llvm::ConstantInt>(select->getFalseValue());
    const bool fits = one && other && one->getBitWidth() > 1 && !one->isNegative() && !other->isNegative();
    return fits ? select : nullptr;
}

// The choices that a trip count is made of, by way of conversions and branches.
void find_choices(llvm::Value *count, llvm::SmallSetVector<llvm::SelectInst *, 8> &found) {
    llvm::SmallVector<llvm::Value *> rest{count};
    llvm::SmallPtrSet<llvm::Value *, most_values> seen;
    while (!rest.empty() && seen.size() < most_values) {
        llvm::Value *value = rest.pop_back_val();
        if (!seen.insert(value).second)
            continue;
        if (llvm::SelectInst *choice = as_choice(value))
            found.insert(choice);
        else if (auto *phi = llvm::dyn_cast<llvm::PHINode>(value))
            rest.append(phi->value_op_begin(), phi->value_op_end());
        else if (llvm::isa<llvm::ZExtInst, llvm::SExtInst, llvm::FreezeInst>(value))
            rest.push_back(llvm::cast<llvm::Instruction>(value)->getOperand(0));
    }
}

void clamp(llvm::SelectInst *choice) {
    const llvm::APInt &one = llvm::cast<llvm::ConstantInt>(choice->getTrueValue())->getValue();
    const llvm::APInt &other = llvm::cast<llvm::ConstantInt>(choice->getFalseValue())->getValue();
    const bool is_ordered = one.ult(other);
    llvm::IRBuilder<> builder(choice->getNextNode());
    auto bound = [&](llvm::Intrinsic::ID id, llvm::Value *value, const llvm::APInt &limit) {
        llvm::Value *constant = llvm::ConstantInt::get(choice->getType(), limit);
        return llvm::cast<llvm::Instruction>(builder.CreateBinaryIntrinsic(id, value, constant));
    };
    llvm::Instruction *above = bound(llvm::Intrinsic::umax, choice, is_ordered ? one : other);
    llvm::Instruction *inside = bound(llvm::Intrinsic::umin, above, is_ordered ? other : one);
    choice->replaceUsesWithIf(inside, [&](llvm::Use &use) { return use.getUser() != above; });
}

} // namespace

llvm::PreservedAnalyses octants::BoundTripCounts::run(llvm::Function &function,
                                                      llvm::FunctionAnalysisManager &analyses) {
    llvm::SmallSetVector<llvm::SelectInst *, 8> choices;
    for (llvm::Loop *loop : analyses.getResult<llvm::LoopAnalysis>(function).getLoopsInPreorder()) {
        llvm::BasicBlock *latch = loop->isInnermost() ? loop->getLoopLatch() : nullptr;
        auto *branch = latch ? llvm::dyn_cast<llvm::BranchInst>(latch->getTerminator()) : nullptr;
        if (!branch || !branch->isConditional())
            continue;
        if (auto *compare = llvm::dyn_cast<llvm::ICmpInst>(branch->getCondition()))
            for (llvm::Value *operand : compare->operands())
                if (loop->isLoopInvariant(operand))
                    find_choices(operand, choices);
    }
    for (llvm::SelectInst *choice : choices)
        clamp(choice);
    if (choices.empty())
        return llvm::PreservedAnalyses::all();
    // Scalar evolution has ranges of the old values.
    llvm::PreservedAnalyses preserved;
    preserved.preserveSet<llvm::CFGAnalyses>();
    return preserved;
}
