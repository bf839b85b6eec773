// Keeps the X86 code generator of LLVM 22 from losing the contents of a mask register.
//
// Its last pass but one (x86-compress-evex) turns `vpmovd2m %xmm0, %k1; kmovd %k1, %eax` into `vmovmskps %xmm0, %eax`.
// It deletes the first instruction although the mask has other users: an instruction that reads and overwrites the
// register (`kshiftrb $1, %k1, %k1`), and users in other blocks. It also forms VEX instructions with registers 16 to
// 31, which these cannot name. llvm/llvm-project, issues 198197 and 191304; the first is mended in 23. The pass gives
// up when the mask has another reader, so each such mask gets one that emits no code.
#include <llvm/CodeGen/MachineFunctionPass.h>
#include <llvm/CodeGen/MachineInstrBuilder.h>
#include <llvm/CodeGen/Passes.h>
#include <llvm/CodeGen/TargetInstrInfo.h>
#include <llvm/CodeGen/TargetPassConfig.h>
#include <llvm/CodeGen/TargetSubtargetInfo.h>
#include <llvm/Target/RegisterTargetPassConfigCallback.h>
#include <llvm/Target/TargetMachine.h>

namespace {

class KeepMasks : public llvm::MachineFunctionPass {
public:
    static char ID;

    KeepMasks() : MachineFunctionPass(ID) {}

    llvm::StringRef getPassName() const override {
        return "Octants: keep masks";
    }

    void getAnalysisUsage(llvm::AnalysisUsage &usage) const override {
        usage.setPreservesCFG();
        MachineFunctionPass::getAnalysisUsage(usage);
    }

    bool runOnMachineFunction(llvm::MachineFunction &function) override {
        const llvm::TargetSubtargetInfo &subtarget = function.getSubtarget();
        if (!subtarget.checkFeatures("+avx512f"))
            return false;
        const llvm::TargetInstrInfo &info = *subtarget.getInstrInfo();
        bool changed = false;
        for (llvm::MachineBasicBlock &block : function) {
            for (auto at = block.begin(); at != block.end();) {
                llvm::MachineInstr &instruction = *at++;
                if (!is_mask_of_signs(info.getName(instruction.getOpcode())))
                    continue;
                llvm::Register mask = instruction.getOperand(0).getReg();
                llvm::BuildMI(block, at, instruction.getDebugLoc(), info.get(llvm::TargetOpcode::KILL)).addReg(mask);
                changed = true;
            }
        }
        return changed;
    }

private:
    // VPMOVB2M, VPMOVW2M, VPMOVD2M and VPMOVQ2M of all sizes.
    static bool is_mask_of_signs(llvm::StringRef name) {
        return name.consume_front("VPMOV") && name.size() > 3 && name.substr(1).starts_with("2MZ");
    }
};

char KeepMasks::ID = 0;

} // namespace

// Has each pipeline of the X86 code generator in this process run the pass. To be called once.
extern "C" void octants_keep_masks() {
    static llvm::RegisterTargetPassConfigCallback callback(
        [](llvm::TargetMachine &machine, llvm::PassManagerBase &, llvm::TargetPassConfig *config) {
            // The last pass before those of the target, at every level of optimization.
            if (machine.getTargetTriple().isX86())
                config->insertPass(&llvm::PatchableFunctionID, new KeepMasks());
        });
}
