// See `bound_trip_counts.cpp`.
#pragma once

#include <llvm/IR/PassManager.h>

namespace octants {

// Runs before the loop vectorizer.
class BoundTripCounts : public llvm::PassInfoMixin<BoundTripCounts> {
public:
    llvm::PreservedAnalyses run(llvm::Function &function, llvm::FunctionAnalysisManager &analyses);
};

} // namespace octants
