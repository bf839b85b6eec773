// LLVM's default pass pipeline, with a choice of the vectorizers.
//
// The pipeline that LLVM's interface for C reads as text, `default<O3>`, always vectorizes: reading it overwrites the
// options of the vectorizers.
#include <llvm-c/TargetMachine.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Target/TargetMachine.h>

#include "bound_trip_counts.h"
#include "check_extrema_early.h"
#include "limit_uniform_chains.h"

namespace {

llvm::OptimizationLevel level_of(unsigned level) {
    switch (level) {
    case 0:
        return llvm::OptimizationLevel::O0;
    case 1:
        return llvm::OptimizationLevel::O1;
    case 2:
        return llvm::OptimizationLevel::O2;
    default:
        return llvm::OptimizationLevel::O3;
    }
}

} // namespace

// `interleaves` enables loop interleaving; `pairs` enables the SLP vectorizer.
extern "C" void octants_run_default_pipeline(LLVMModuleRef module, LLVMTargetMachineRef machine, unsigned level,
                                             bool interleaves, bool pairs) {
    llvm::PipelineTuningOptions options;
    options.LoopVectorization = level >= 2;
    options.LoopInterleaving = interleaves;
    options.SLPVectorization = pairs;
    options.LoopUnrolling = level >= 2;
    // Otherwise unrolling a loop updates the analyses of all its siblings, which is quadratic in the number of loops.
    options.ForgetAllSCEVInLoopUnroll = true;
    options.MergeFunctions = false;
    llvm::PassBuilder builder(reinterpret_cast<llvm::TargetMachine *>(machine), options);
    llvm::LoopAnalysisManager loops;
    llvm::FunctionAnalysisManager functions;
    llvm::CGSCCAnalysisManager graphs;
    llvm::ModuleAnalysisManager modules;
    builder.registerLoopAnalyses(loops);
    builder.registerFunctionAnalyses(functions);
    builder.registerCGSCCAnalyses(graphs);
    builder.registerModuleAnalyses(modules);
    builder.crossRegisterProxies(loops, functions, graphs, modules);
    builder.registerVectorizerStartEPCallback([](llvm::FunctionPassManager &passes, llvm::OptimizationLevel) {
        passes.addPass(octants::LimitUniformChains());
        passes.addPass(octants::BoundTripCounts());
    });
    builder.registerOptimizerLastEPCallback(
        [](llvm::ModulePassManager &passes, llvm::OptimizationLevel, llvm::ThinOrFullLTOPhase) {
            passes.addPass(llvm::createModuleToFunctionPassAdaptor(octants::CheckExtremaEarly()));
        });
    builder.buildPerModuleDefaultPipeline(level_of(level)).run(*llvm::unwrap(module), modules);
}
