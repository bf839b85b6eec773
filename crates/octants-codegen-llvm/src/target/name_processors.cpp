// LLVM's processor names and features, which its C interface does not expose.
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/TargetParser/AArch64TargetParser.h>
#include <llvm/TargetParser/Triple.h>
#include <llvm/TargetParser/X86TargetParser.h>
#include <memory>
#include <string>

// `changes` are features that the processor has or lacks, in contrast to its name ("-sse4a").
static std::unique_ptr<llvm::MCSubtargetInfo> open(const char *triple, const char *processor, const char *changes) {
    std::string error;
    llvm::Triple parsed(triple);
    const llvm::Target *target = llvm::TargetRegistry::lookupTarget(parsed, error);
    return std::unique_ptr<llvm::MCSubtargetInfo>(target ? target->createMCSubtargetInfo(parsed, processor, changes)
                                                         : nullptr);
}

// Whether a processor that LLVM knows has all of these features ("+avx2,+fma"). No processor has an unknown feature.
extern "C" bool octants_processor_has(const char *triple, const char *processor, const char *changes,
                                      const char *features) {
    auto subtarget = open(triple, processor, changes);
    if (!subtarget)
        return false;
    llvm::SubtargetFeatures wanted(features);
    return llvm::all_of(wanted.getFeatures(), [&](llvm::StringRef feature) {
        llvm::StringRef name = feature.drop_while([](char c) { return c == '+'; });
        return llvm::any_of(subtarget->getAllProcessorFeatures(), [&](const llvm::SubtargetFeatureKV &known) {
            return name == known.Key && subtarget->getFeatureBits().test(known.Value);
        });
    });
}

// Calls `take` with the shortest changes to a processor ("-sse4a") that leave it with just `features`, a list of all
// that it has ("+avx2") and lacks ("-sse4a"); with the list itself where none are known to.
extern "C" void octants_processor_changes(const char *triple, const char *processor, const char *features, void *to,
                                          void (*take)(void *to, const char *text, size_t length)) {
    auto named = open(triple, processor, ""), wanted = open(triple, processor, features);
    llvm::SubtargetFeatures changes;
    if (named && wanted)
        for (const llvm::SubtargetFeatureKV &known : named->getAllProcessorFeatures()) {
            bool has = wanted->getFeatureBits().test(known.Value);
            if (named->getFeatureBits().test(known.Value) != has)
                changes.AddFeature(known.Key, has);
        }
    auto changed = open(triple, processor, changes.getString().c_str());
    bool same = changed && wanted && changed->getFeatureBits() == wanted->getFeatureBits();
    std::string text = same ? changes.getString() : features;
    take(to, text.data(), text.size());
}

// Calls `take` with the name of each processor of 64 bits of an architecture, and its length.
extern "C" void octants_processors(const char *triple, void *to, void (*take)(void *to, const char *name, size_t length)) {
    llvm::SmallVector<llvm::StringRef, 256> names;
    llvm::Triple parsed(triple);
    if (parsed.isAArch64())
        llvm::AArch64::fillValidCPUArchList(names);
    else if (parsed.isX86())
        llvm::X86::fillValidCPUArchList(names, /*Only64Bit=*/true);
    for (llvm::StringRef name : names)
        take(to, name.data(), name.size());
}
