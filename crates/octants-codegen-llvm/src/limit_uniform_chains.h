// See `limit_uniform_chains.cpp`.
#pragma once

#include <llvm/IR/PassManager.h>

namespace octants {

// Runs before the loop vectorizer.
class LimitUniformChains : public llvm::PassInfoMixin<LimitUniformChains> {
public:
    llvm::PreservedAnalyses run(llvm::Function &function, llvm::FunctionAnalysisManager &analyses);
};

} // namespace octants
