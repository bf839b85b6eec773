// See `check_extrema_early.cpp`.
#pragma once

#include <llvm/IR/PassManager.h>

namespace octants {

// Runs last.
class CheckExtremaEarly : public llvm::PassInfoMixin<CheckExtremaEarly> {
public:
    llvm::PreservedAnalyses run(llvm::Function &function, llvm::FunctionAnalysisManager &analyses);
};

} // namespace octants
