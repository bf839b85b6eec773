// Works around a query of LLVM 22's loop vectorizer that takes exponential time.
//
// `vputils::isSingleScalar` asks whether a value is uniform across lanes. It queries the operands first, without
// caching the answers. A chain of loop-invariant values, each used twice by the next, therefore doubles the time with
// each link: `x = n - x if x % 4 == 1 else x`, 18 times in a row, took hours. Such chains result from loops that were
// unrolled after the last loop-invariant code motion.
//
// Such a chain is hoisted out of its loop. If a part of it cannot be hoisted, the loop is not vectorized.
#include <llvm/ADT/DenseMap.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/LoopIterator.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/PassManager.h>
#include <llvm/Transforms/Utils/LoopUtils.h>

#include "limit_uniform_chains.h"

namespace {

// The number of queries about one value that takes negligible time.
constexpr uint64_t most_questions = 1 << 12;

// The maximum number of queries for a value of the loop.
uint64_t count_questions(llvm::Loop &loop, llvm::LoopInfo &loops) {
    llvm::DenseMap<llvm::Value *, uint64_t> questions;
    llvm::SmallPtrSet<llvm::Value *, 32> uniform;
    uint64_t most = 0;
    llvm::LoopBlocksRPO order(&loop);
    order.perform(&loops);
    for (llvm::BasicBlock *block : order) {
        for (llvm::Instruction &instruction : *block) {
            const bool may_be_uniform = !(llvm::isa<llvm::PHINode>(instruction) && block == loop.getHeader());
            uint64_t asked = 1;
            bool is_uniform = may_be_uniform;
            for (llvm::Value *operand : instruction.operands()) {
                if (!is_uniform)
                    break;
                is_uniform = loop.isLoopInvariant(operand) || uniform.contains(operand);
                const auto known = questions.find(operand);
                asked += known == questions.end() ? 1 : known->second;
            }
            asked = std::min(asked, most_questions + 1);
            questions[&instruction] = asked;
            if (is_uniform)
                uniform.insert(&instruction);
            most = std::max(most, asked);
        }
    }
    return most;
}

} // namespace

llvm::PreservedAnalyses octants::LimitUniformChains::run(llvm::Function &function,
                                                         llvm::FunctionAnalysisManager &analyses) {
    auto &loops = analyses.getResult<llvm::LoopAnalysis>(function);
    bool changed = false;
    for (llvm::Loop *loop : loops.getLoopsInPreorder()) {
        if (!loop->isInnermost() || count_questions(*loop, loops) <= most_questions)
            continue;
        llvm::LoopBlocksRPO order(loop);
        order.perform(&loops);
        for (llvm::BasicBlock *block : order)
            for (llvm::Instruction &instruction : llvm::make_early_inc_range(*block))
                if (!llvm::isa<llvm::PHINode>(instruction))
                    loop->makeLoopInvariant(&instruction, changed);
        if (count_questions(*loop, loops) > most_questions)
            llvm::addStringMetadataToLoop(loop, "llvm.loop.vectorize.enable", 0);
        changed = true;
    }
    return changed ? llvm::PreservedAnalyses::none() : llvm::PreservedAnalyses::all();
}
