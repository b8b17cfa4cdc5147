package datapath

import (
	"encoding/binary"

	"github.com/cilium/ebpf/asm"
)

// constantsMap is the map with what the agent sets before the verifier runs: const volatile in bpf/.
const constantsMap = ".rodata"

// writeConstants has instructions that load a constant from memory set its value instead, once all are set: packets find these
// lines of memory in no cache, as a rule.
func (s *Spec) writeConstants() {
	m := s.Maps[constantsMap]
	if m == nil {
		return
	}
	memory := make([]byte, m.ValueSize)
	if len(m.Contents) == 1 {
		if initial, ok := m.Contents[0].Value.([]byte); ok {
			copy(memory, initial)
		}
	}
	for _, v := range s.Variables {
		if v.SectionName == constantsMap {
			copy(memory[v.Offset:], v.Value)
		}
	}
	for _, p := range s.Programs {
		writeConstants(p.Instructions, memory)
	}
}

// writeConstants follows which registers point to constants, from a jump's target to the next.
func writeConstants(all asm.Instructions, memory []byte) {
	targets := jumpTargets(all)
	points := map[asm.Register]uint64{} // offset of a constant
	for each := all.Iterate(); each.Next(); {
		ins := each.Ins
		if ins.Symbol() != "" || targets[each.Offset] {
			clear(points)
		}
		class := ins.OpCode.Class()
		switch {
		case class.IsLoad():
			at, known := points[ins.Src]
			if ins.OpCode.Mode() == asm.MemMode && known {
				setConstant(ins, memory, at+uint64(ins.Offset))
			}
			delete(points, ins.Dst)
			if ins.OpCode.IsDWordLoad() && ins.Src == asm.PseudoMapValue && ins.Reference() == constantsMap {
				points[ins.Dst] = uint64(ins.Constant) >> 32
			}
		case class == asm.StXClass && ins.OpCode.Mode() == asm.AtomicMode: // some bring a value back
			delete(points, ins.Src)
			delete(points, asm.R0)
		case class.IsALU():
			delete(points, ins.Dst)
		case class.IsJump() && ins.OpCode.JumpOp() == asm.Call:
			for r := asm.R0; r <= asm.R5; r++ {
				delete(points, r)
			}
		}
	}
}

// setConstant turns a load from so far in the constants into the value that is there.
func setConstant(ins *asm.Instruction, memory []byte, at uint64) {
	size := uint64(ins.OpCode.Size().Sizeof())
	if at > uint64(len(memory)) || size > uint64(len(memory))-at {
		return
	}
	var value uint64
	switch b := memory[at:]; size {
	case 1:
		value = uint64(b[0])
	case 2:
		value = uint64(binary.NativeEndian.Uint16(b))
	case 4:
		value = uint64(binary.NativeEndian.Uint32(b))
	default:
		value = binary.NativeEndian.Uint64(b)
	}
	if value>>32 != 0 {
		return // it would take two instructions
	}
	set := asm.Mov.Imm32(ins.Dst, int32(uint32(value)))
	set.Metadata = ins.Metadata
	*ins = set
}

// jumpTargets are offsets of instructions that a jump leads to.
func jumpTargets(all asm.Instructions) map[asm.RawInstructionOffset]bool {
	targets := map[asm.RawInstructionOffset]bool{}
	for each := all.Iterate(); each.Next(); {
		op := each.Ins.OpCode
		if !op.Class().IsJump() || op.JumpOp() == asm.Call || op.JumpOp() == asm.Exit {
			continue
		}
		by := int64(each.Ins.Offset)
		if op.Class() == asm.Jump32Class && op.JumpOp() == asm.Ja {
			by = each.Ins.Constant
		}
		targets[asm.RawInstructionOffset(int64(each.Offset)+1+by)] = true
	}
	return targets
}
