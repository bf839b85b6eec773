// Lets long loops of code for processors be left: their back edges call the host now and then.
//
// It runs behind LLVM's passes, so that these see the loops as they are: a call in a loop would keep it from becoming
// vector code. Each loop that may be long counts its iterations down in a register, and calls when the count is zero.
// The call is the function that the context holds (`HostContext::poll`), which may never return.
//
// `octants.polled(context)` marks a function, and says where its context is. It is removed here.
#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/ScalarEvolution.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Target/TargetMachine.h>

namespace {

// Iterations between two calls, of loops without and with inner loops. A call takes some 30 ns.
constexpr unsigned innermost_interval = 4096, outer_interval = 256;
// Loops with at most this many iterations, those of inner loops included, make no calls.
constexpr uint64_t most_iterations = 1 << 14;

struct Polled {
    llvm::BasicBlock *header;
    llvm::SmallVector<llvm::BasicBlock *, 2> latches;
    unsigned interval;
};

// Most iterations of a loop with its inner ones, `most_iterations` and one where there may be more. Collects the loops
// that may have more.
uint64_t find_polled(llvm::Loop &loop, llvm::ScalarEvolution &evolution, llvm::SmallVectorImpl<Polled> &found) {
    uint64_t inside = 1;
    for (llvm::Loop *inner : loop)
        inside = std::max(inside, find_polled(*inner, evolution, found));
    const uint64_t trips = evolution.getSmallConstantMaxTripCount(&loop);
    const uint64_t all = trips == 0 ? most_iterations + 1 : std::min(trips * inside, most_iterations + 1);
    if (all <= most_iterations)
        return all;
    Polled polled{loop.getHeader(), {}, loop.isInnermost() ? innermost_interval : outer_interval};
    loop.getLoopLatches(polled.latches);
    const auto has_one_edge = [&](llvm::BasicBlock *latch) {
        return llvm::isa<llvm::BranchInst, llvm::SwitchInst>(latch->getTerminator()) &&
               llvm::count(llvm::successors(latch), polled.header) == 1;
    };
    if (llvm::all_of(polled.latches, has_one_edge))
        found.push_back(polled);
    return all;
}

// Makes the back edges of a loop count, and call `poll(context)`.
void poll(const Polled &loop, llvm::Value *context, unsigned offset) {
    llvm::BasicBlock *header = loop.header;
    llvm::Function &function = *header->getParent();
    llvm::LLVMContext &all = function.getContext();
    // `again` counts, `call` is run seldom, both go on in `back`.
    auto *again = llvm::BasicBlock::Create(all, "poll.again", &function);
    auto *call = llvm::BasicBlock::Create(all, "poll.call", &function);
    auto *back = llvm::BasicBlock::Create(all, "poll.back", &function);
    llvm::IRBuilder<> builder(again);
    for (llvm::PHINode &phi : header->phis()) {
        llvm::PHINode *joined = builder.CreatePHI(phi.getType(), loop.latches.size());
        for (llvm::BasicBlock *latch : loop.latches) {
            joined->addIncoming(phi.getIncomingValueForBlock(latch), latch);
            phi.removeIncomingValue(latch, false);
        }
        phi.addIncoming(joined, back);
    }
    for (llvm::BasicBlock *latch : loop.latches)
        latch->getTerminator()->replaceSuccessorWith(header, again);
    llvm::Value *interval = builder.getInt32(loop.interval);
    auto *left = llvm::PHINode::Create(builder.getInt32Ty(), 2, "poll.left");
    left->insertBefore(header->begin());
    llvm::Value *less = builder.CreateSub(left, builder.getInt32(1));
    llvm::MDNode *seldom = llvm::MDBuilder(all).createBranchWeights(1, 1 << 20);
    builder.CreateCondBr(builder.CreateICmpEQ(less, builder.getInt32(0)), call, back, seldom);
    builder.SetInsertPoint(call);
    llvm::Value *field = builder.CreateConstInBoundsGEP1_64(builder.getInt8Ty(), context, offset);
    llvm::Value *target = builder.CreateAlignedLoad(builder.getPtrTy(), field, llvm::Align(8));
    auto *type = llvm::FunctionType::get(builder.getVoidTy(), {builder.getPtrTy()}, false);
    llvm::CallInst *called = builder.CreateCall(type, target, {context});
    called->addFnAttr(llvm::Attribute::Cold);
    called->addFnAttr(llvm::Attribute::NoUnwind);
    builder.CreateBr(back);
    builder.SetInsertPoint(back);
    llvm::PHINode *next = builder.CreatePHI(builder.getInt32Ty(), 2);
    next->addIncoming(less, again);
    next->addIncoming(interval, call);
    builder.CreateBr(header);
    for (llvm::BasicBlock *from : llvm::predecessors(header))
        left->addIncoming(from == back ? next : interval, from);
}

} // namespace

// `offset`: of the function to call in the context.
extern "C" void octants_poll_loops(LLVMModuleRef of, LLVMTargetMachineRef machine, unsigned offset) {
    llvm::Module &module = *llvm::unwrap(of);
    llvm::Function *mark = module.getFunction("octants.polled");
    if (mark == nullptr)
        return;
    llvm::MapVector<llvm::Function *, llvm::Value *> contexts;
    for (llvm::User *user : llvm::make_early_inc_range(mark->users())) {
        auto *call = llvm::cast<llvm::CallInst>(user);
        if (llvm::isa<llvm::Argument>(call->getArgOperand(0)))
            contexts.insert({call->getFunction(), call->getArgOperand(0)});
        call->eraseFromParent();
    }
    mark->eraseFromParent();
    llvm::PassBuilder builder(reinterpret_cast<llvm::TargetMachine *>(machine));
    llvm::FunctionAnalysisManager analyses;
    builder.registerFunctionAnalyses(analyses);
    for (auto &[function, context] : contexts) {
        llvm::SmallVector<Polled, 8> loops;
        auto &evolution = analyses.getResult<llvm::ScalarEvolutionAnalysis>(*function);
        for (llvm::Loop *loop : analyses.getResult<llvm::LoopAnalysis>(*function))
            find_polled(*loop, evolution, loops);
        analyses.clear(*function, function->getName());
        for (const Polled &loop : loops)
            poll(loop, context, offset);
    }
}
