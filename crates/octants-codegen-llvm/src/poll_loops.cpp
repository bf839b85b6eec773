// Makes long loops of CPU code interruptible: they call the host now and then.
//
// This runs after LLVM's passes, because a call would prevent a loop from being vectorized. Each loop that may be
// long counts its iterations down in a register, and calls when the count is zero. The callee is in the context
// (`HostContext::poll`), and may not return. On x86-64 it preserves all registers, and is called by inline assembly
// that declares this: with a normal call, LLVM would spill the loop's vector registers, partly on the hot path.
//
// `octants.polled(context)` marks a function, and says where its context is. It is removed here.
#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/ScalarEvolution.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Target/TargetMachine.h>

namespace {

// Iterations between two calls, of loops without and with inner loops. A call takes about 30 ns.
constexpr unsigned innermost_interval = 4096, outer_interval = 256;
// Loops with at most this many iterations, those of inner loops included, make no calls.
constexpr uint64_t most_iterations = 1 << 14;

struct Polled {
    llvm::BasicBlock *header;
    llvm::SmallPtrSet<llvm::BasicBlock *, 2> latches;
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
    llvm::SmallVector<llvm::BasicBlock *, 2> latches;
    loop.getLoopLatches(latches);
    polled.latches.insert_range(latches);
    found.push_back(polled);
    return all;
}

void call_host(llvm::IRBuilder<> &builder, llvm::Value *context, unsigned offset) {
    auto *type = llvm::FunctionType::get(builder.getVoidTy(), {builder.getPtrTy()}, false);
    llvm::CallInst *call;
    if (builder.GetInsertBlock()->getModule()->getTargetTriple().isX86_64()) {
        // A function that calls nothing may use the 128 bytes below its stack.
        const std::string text = "leaq -128(%rsp), %rsp\n\tcallq *" + std::to_string(offset) +
                                 "(%rdi)\n\tleaq 128(%rsp), %rsp";
        call = builder.CreateCall(type, llvm::InlineAsm::get(type, text, "{rdi},~{dirflag},~{fpsr},~{flags}", true),
                                  {context});
    } else {
        llvm::Value *field = builder.CreateConstInBoundsGEP1_64(builder.getInt8Ty(), context, offset);
        call = builder.CreateCall(type, builder.CreateAlignedLoad(builder.getPtrTy(), field, llvm::Align(8)), {context});
    }
    call->addFnAttr(llvm::Attribute::Cold);
    call->addFnAttr(llvm::Attribute::NoUnwind);
}

// Makes the header of a loop count, and call `poll(context)`. The exit stays after the body. `ends` holds the
// headers whose ends became separate blocks.
void poll(const Polled &loop, llvm::Value *context, unsigned offset,
          llvm::DenseMap<llvm::BasicBlock *, llvm::BasicBlock *> &ends) {
    llvm::BasicBlock *header = loop.header;
    llvm::LLVMContext &all = header->getContext();
    llvm::BasicBlock *body = header->splitBasicBlock(header->getFirstInsertionPt(), "poll.body");
    ends[body] = header;
    auto *call = llvm::BasicBlock::Create(all, "poll.call", header->getParent());
    llvm::IRBuilder<> builder(header, header->getTerminator()->getIterator());
    auto *left = llvm::PHINode::Create(builder.getInt32Ty(), 2, "poll.left");
    left->insertBefore(header->begin());
    llvm::Value *interval = builder.getInt32(loop.interval);
    llvm::Value *less = builder.CreateSub(left, builder.getInt32(1));
    llvm::MDNode *seldom = llvm::MDBuilder(all).createBranchWeights(1, 1 << 20);
    builder.CreateCondBr(builder.CreateICmpEQ(less, builder.getInt32(0)), call, body, seldom);
    header->getTerminator()->eraseFromParent();
    builder.SetInsertPoint(call);
    call_host(builder, context, offset);
    builder.CreateBr(body);
    builder.SetInsertPoint(body, body->begin());
    llvm::PHINode *next = builder.CreatePHI(builder.getInt32Ty(), 2);
    next->addIncoming(less, header);
    next->addIncoming(interval, call);
    for (llvm::BasicBlock *from : llvm::predecessors(header)) {
        const auto end = ends.find(from);
        const bool goes_round = loop.latches.contains(end == ends.end() ? from : end->second);
        left->addIncoming(goes_round ? static_cast<llvm::Value *>(next) : interval, from);
    }
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
        llvm::DenseMap<llvm::BasicBlock *, llvm::BasicBlock *> ends;
        for (const Polled &loop : loops)
            poll(loop, context, offset, ends);
    }
}
